// TCP between the first ranks of the nodes: one connection per pair. An exchange sends at most one message to and
// receives at most one from every other node, all at the same time, so that two nodes that both send cannot block each
// other. Every message opens with the operation's descriptor, which the receiver compares. Used by one thread at a
// time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "comm/health.h"
#include "comm/operation.h"

namespace lockstep::comm {

struct Transfer {
  int node = 0;
  const void* send = nullptr;
  size_t send_bytes = 0;
  void* receive = nullptr;
  size_t receive_bytes = 0;
  bool sends = false;
  bool receives = false;
};

class Links {
 public:
  // fds[n]: to the first rank of node n, own invalid. first_rank[n]: that rank, for messages.
  Links(int node, std::vector<UniqueFd> fds, std::vector<int> first_rank, Health* health);

  int node() const { return node_; }
  int nodes() const { return static_cast<int>(fds_.size()); }

  // kTimeout at the deadline, kNodeLost when a connection is gone, kRankFailed when a peer is in another operation.
  Status Exchange(const Descriptor& what, uint32_t step, std::vector<Transfer> transfers, TimePoint deadline);

  uint64_t bytes_sent() const { return bytes_sent_; }
  // Seconds of exchanges in which this node's message came in last, so far. Any thread.
  double Waited(int node) const {
    return static_cast<double>(waited_ns_[static_cast<size_t>(node)].load(std::memory_order_relaxed)) * 1e-9;
  }
  int first_rank(int node) const { return first_rank_[static_cast<size_t>(node)]; }

 private:
  struct Head {
    uint32_t magic;
    uint32_t step;
    uint64_t bytes;
    Descriptor what;
    uint64_t reserved;
  };
  struct Progress;

  Status Push(Progress* p);
  Status Pull(Progress* p, const Descriptor& what, uint32_t step);

  const int node_;
  const std::vector<UniqueFd> fds_;
  const std::vector<int> first_rank_;
  Health* const health_;
  uint64_t bytes_sent_ = 0;
  std::vector<std::atomic<int64_t>> waited_ns_;
};

}  // namespace lockstep::comm
