// The data movement of the operations, given the node's memory and the links to other nodes. One operation at a time,
// by whichever thread is at work; Find may be called by another.
//
// Bytes, n ranks on a node, N nodes, all-reduce of B bytes: in place every rank reads and writes B in total; staged it
// copies (n-1)/n B in and out besides. Between nodes the first rank of each sends 2 (N-1)/N B (16-bit sums travel as
// f32 on the way to the adder: half as much again).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/links.h"
#include "comm/node_group.h"
#include "comm/operation.h"
#include "comm/rendezvous.h"

namespace lockstep::comm {

class Collectives {
 public:
  // links is null on ranks that are not the first of their node, and where there is one node.
  Collectives(const RendezvousResult& rendezvous, std::unique_ptr<NodeGroup> node, std::unique_ptr<Links> links);

  // kTimeout, kNodeLost, kRankFailed (mismatch) or the health's status.
  Status Run(const Operation& operation, TimePoint deadline);

  // Buffers of Allocate, in order. The newest one is what the last kAllocate operation made.
  SharedBuffer NewestBuffer() const;
  // Fills in buffer and offset when [data, data + bytes) lies in a shared buffer of this rank.
  void Find(const void* data, size_t bytes, uint32_t* buffer, uint64_t* offset) const;

  uint64_t shm_bytes() const { return shm_bytes_.load(std::memory_order_relaxed); }
  // See Communicator::waits.
  std::vector<double> Waits() const;
  uint64_t tcp_bytes() const { return tcp_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Buffer {
    size_t bytes;
    std::vector<std::shared_ptr<std::byte>> memory;  // by local rank
  };

  Status Small(const Operation& o);
  Status AllReduce(const Operation& o);
  Status AllReduceInPlace(const Operation& o);
  Status ReduceScatter(const Operation& o);
  Status ReduceScatterAcrossNodes(const Operation& o);
  Status AllGather(const Operation& o);
  Status AllGatherAcrossNodes(const Operation& o);
  Status Broadcast(const Operation& o);
  Status Send(const Operation& o);
  Status Allocate(const Operation& o);
  Status Compare(const Descriptor& mine);

  // Between nodes, by the first ranks; nothing elsewhere. part_of(n): elements [first, last) that node n adds up.
  struct Part {
    size_t first = 0;
    size_t last = 0;
  };
  Status ReduceOverNodes(const Operation& o, const std::vector<Part>& parts, size_t count, bool gather);
  Status GatherOverNodes(const Operation& o, const std::vector<Part>& parts, std::byte* area);
  Status SyncOverNodes(const Operation& o, int root_node, std::byte* data, size_t bytes, int to_node = -1);
  int NodeOf(int rank) const;

  Status Sync() { return node_->Sync(deadline_); }
  bool SameInput(const Descriptor& mine) const { return same_in_ && mine.in_buffer != kNoBuffer; }
  bool SameOutput(const Descriptor& mine) const { return same_out_ && mine.out_buffer != kNoBuffer; }
  std::byte* PeerInput(int local, const Descriptor& mine) const;
  std::byte* PeerOutput(int local, const Descriptor& mine) const;
  void CountShm(size_t bytes) {
    if (node_->size() > 1) shm_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  const RankIdentity identity_;
  const std::vector<std::vector<int>> ranks_of_;
  std::vector<size_t> packed_;  // by rank: its position when ranks are ordered by node
  std::unique_ptr<NodeGroup> node_;
  std::unique_ptr<Links> links_;
  TimePoint deadline_;
  uint32_t step_ = 0;
  bool same_in_ = false;
  bool same_out_ = false;
  std::vector<std::vector<std::byte>> incoming_;  // by node: what other nodes sent to be added
  mutable std::mutex mutex_;                      // buffers_
  std::deque<Buffer> buffers_;
  std::atomic<uint64_t> shm_bytes_{0};
  std::atomic<uint64_t> tcp_bytes_{0};
};

}  // namespace lockstep::comm
