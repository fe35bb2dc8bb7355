// Sums over a fixed tree, whatever the number of ranks. The global batch has `leaves` canonical shards (a power of
// two); the tree over them is the balanced pairwise one. Each rank owns a contiguous range of leaves, adds up what it
// can on its own, and the rest is finished between ranks, so that the result has the same bits on 1, 2, 3, 4 ... ranks.
//
// Where the ranks' ranges are whole subtrees of equal size and the all-reduce of their tensors adds over that tree, one
// all-reduce finishes it; otherwise the open nodes of all ranks are gathered, piece by piece, and every rank adds them
// up. Used by the training thread; Finish is collective.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engine/ranks.h"

namespace lockstep::engine {

// A node of the tree: level 0 are the leaves, node i of a level covers nodes 2i and 2i+1 of the one below.
struct TreeNode {
  int level = 0;
  uint64_t index = 0;
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};

// The fewest nodes that cover leaves [first, first + count), from left to right.
std::vector<TreeNode> CoverRange(uint64_t first, uint64_t count);

// The leaves of one rank: contiguous, sizes differ by at most one.
struct LeafRange {
  uint64_t first = 0, count = 0;
};
LeafRange LeavesOf(uint64_t leaves, int rank, int size);

class TreeSum {
 public:
  TreeSum(uint64_t leaves, at::Tensor buffer, Ranks* ranks);

  void Begin();
  // `buffer` holds the value of this rank's next leaf. More leaves to come: it is zero afterwards.
  void AddLeaf();
  // All leaves of all ranks are in: `buffer` becomes their sum.
  Status Finish();

 private:
  struct Open {
    TreeNode node;
    at::Tensor value;  // undefined: it is in buffer_
  };
  at::Tensor Spare();
  Status GatherAndAdd();

  uint64_t leaves_;
  at::Tensor buffer_;
  Ranks* ranks_;
  LeafRange mine_;
  bool one_all_reduce_ = false;
  uint64_t next_ = 0;
  std::vector<Open> open_;
  std::vector<at::Tensor> spare_;
};

}  // namespace lockstep::engine
