#include "engine/tree_sum.h"

#include <mutex>

#include "engine/ranks_fixture.h"

namespace lockstep::engine {
namespace {

// Values whose sum depends on the order of additions.
at::Tensor Leaf(uint64_t index, int64_t n) {
  at::Tensor value = at::empty({n});
  auto* p = value.mutable_data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) {
    p[i] = (static_cast<float>((index * 2654435761U + static_cast<uint64_t>(i) * 40503U) % 2003U) - 1001.0F) *
           ((index + static_cast<uint64_t>(i)) % 3 == 0 ? 1e-3F : 1e3F / 7.0F);
  }
  return value;
}

// The balanced pairwise tree, written out.
at::Tensor Direct(uint64_t first, uint64_t count, int64_t n) {
  if (count == 1) return Leaf(first, n);
  return Direct(first, count / 2, n) + Direct(first + count / 2, count / 2, n);
}

at::Tensor OverRanks(uint64_t leaves, int world, int64_t n, const std::vector<std::string>& nodes = {}) {
  at::Tensor result;
  std::mutex mutex;
  OnRanks(
      world,
      [&](Ranks& ranks) {
        at::Tensor buffer = ranks.tensors().AllocateFlat(n, at::kFloat, at::kCPU);
        TreeSum sum(leaves, buffer, &ranks);
        for (int round = 0; round < 2; ++round) {  // the second round meets the buffers of the first
          buffer.zero_();
          sum.Begin();
          const LeafRange mine = LeavesOf(leaves, ranks.rank(), world);
          for (uint64_t i = 0; i < mine.count; ++i) {
            buffer.add_(Leaf(mine.first + i, n));
            sum.AddLeaf();
          }
          ASSERT_TRUE(sum.Finish().ok());
        }
        const std::lock_guard lock(mutex);
        if (ranks.rank() == world - 1) result = buffer.clone();
      },
      nodes);
  return result;
}

TEST(CoverRange, HasTheFewestNodes) {
  EXPECT_EQ(CoverRange(0, 8), (std::vector<TreeNode>{{3, 0}}));
  EXPECT_EQ(CoverRange(4, 4), (std::vector<TreeNode>{{2, 1}}));
  EXPECT_EQ(CoverRange(1, 3), (std::vector<TreeNode>{{0, 1}, {1, 1}}));
  EXPECT_EQ(CoverRange(1, 6), (std::vector<TreeNode>{{0, 1}, {1, 1}, {1, 2}, {0, 6}}));
  EXPECT_EQ(CoverRange(3, 0), (std::vector<TreeNode>{}));
}

TEST(CoverRange, CoversEveryLeafOnce) {
  for (uint64_t first = 0; first < 32; ++first) {
    for (uint64_t count = 1; first + count <= 32; ++count) {
      uint64_t next = first;
      for (const TreeNode& node : CoverRange(first, count)) {
        EXPECT_EQ(node.index << node.level, next);
        next += uint64_t{1} << node.level;
      }
      EXPECT_EQ(next, first + count);
    }
  }
}

class TreeSumOnRanks : public testing::TestWithParam<int> {};

TEST_P(TreeSumOnRanks, HasTheBitsOfTheTreeWrittenOut) {
  const at::Tensor expected = Direct(0, 8, 1000);
  EXPECT_TRUE(at::equal(OverRanks(8, GetParam(), 1000), expected));
}

INSTANTIATE_TEST_SUITE_P(Worlds, TreeSumOnRanks, testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST(TreeSum, HasTheSameBitsOverSeveralNodes) {
  const at::Tensor expected = Direct(0, 8, 1000);
  EXPECT_TRUE(at::equal(OverRanks(8, 4, 1000, {"a", "a", "b", "b"}), expected));
  EXPECT_TRUE(at::equal(OverRanks(8, 3, 1000, {"a", "b", "b"}), expected));
}

TEST(TreeSum, GathersInPiecesWhatDoesNotFitIntoOne) {
  const int64_t n = (1 << 18) + 4321;
  EXPECT_TRUE(at::equal(OverRanks(4, 3, n), Direct(0, 4, n)));
}

TEST(TreeSum, DiffersFromASumInSequence) {  // otherwise the tests above could not fail
  at::Tensor sequence = at::zeros({1000});
  for (uint64_t i = 0; i < 8; ++i) sequence.add_(Leaf(i, 1000));
  EXPECT_FALSE(at::equal(sequence, Direct(0, 8, 1000)));
}

}  // namespace
}  // namespace lockstep::engine
