// The ranks of one node and the memory they share. Every rank owns a segment that all of them map: a counter of phases,
// two slots for descriptors, two for small payloads, areas for staging. Ranks go through phases together; a rank that
// waits spins for a moment and then sleeps on the counter of the rank it waits for. Used by one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "comm/health.h"
#include "comm/operation.h"

namespace lockstep::comm {

// Payloads up to this size go through the two small slots: one phase, no second synchronization.
inline constexpr size_t kSmallBytes = size_t{32} << 10;

class NodeGroup {
 public:
  struct Shared {  // the head of a segment
    alignas(128) std::atomic<uint32_t> phase;
    std::atomic<uint32_t> sleepers;
    alignas(128) Descriptor slots[2];
  };

  // Collective among the ranks of the node: exchanges segments over the unix sockets of the rendezvous.
  static Result<std::unique_ptr<NodeGroup>> Create(int local_rank, int local_size, std::vector<UniqueFd> sockets,
                                                   size_t staging_bytes, std::chrono::microseconds spin, Health* health,
                                                   TimePoint deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Areas of a local rank's segment. Result and partial are used in the first rank's segment only.
  std::byte* Small(int r, uint64_t sequence) const {
    return segments_[At(r)].get() + kHead + (sequence & 1) * kSmallBytes;
  }
  std::byte* Staging(int r) const { return segments_[At(r)].get() + kHead + 2 * kSmallBytes; }
  std::byte* ResultArea() const { return segments_[0].get() + kHead + 2 * kSmallBytes + staging_; }
  std::byte* PartialArea() const { return ResultArea() + staging_; }  // twice as large: f32 of 16-bit types
  size_t staging_bytes() const { return staging_; }
  Descriptor& Slot(int r, uint64_t sequence) const { return Head(r)->slots[sequence & 1]; }

  // Arrives at the next phase and waits for everybody. kTimeout at the deadline; the health's status when broken.
  Status Sync(TimePoint deadline);

  // Seconds this rank waited while a local rank was the last to arrive, so far. Any thread.
  double Waited(int r) const { return static_cast<double>(waited_ns_[At(r)].load(std::memory_order_relaxed)) * 1e-9; }

  // Collective: memory of every rank of the node, this rank's first among equals at [rank()].
  Result<std::vector<std::shared_ptr<std::byte>>> Exchange(size_t bytes, TimePoint deadline);

 private:
  static constexpr size_t kHead = 4096;

  NodeGroup(int rank, int size, std::vector<UniqueFd> sockets, size_t staging, std::chrono::microseconds spin,
            Health* health)
      : rank_(rank),
        size_(size),
        sockets_(std::move(sockets)),
        staging_(staging),
        spin_(spin),
        health_(health),
        waited_ns_(At(size)) {}
  static size_t At(int r) { return static_cast<size_t>(r); }
  Shared* Head(int r) const { return reinterpret_cast<Shared*>(segments_[At(r)].get()); }
  Status WaitFor(int r, TimePoint deadline, bool* slept);
  Status Sleep(int r, TimePoint deadline);

  const int rank_;
  const int size_;
  const std::vector<UniqueFd> sockets_;
  const size_t staging_;
  const std::chrono::microseconds spin_;
  Health* const health_;
  std::vector<std::shared_ptr<std::byte>> segments_;
  uint32_t phase_ = 0;
  std::vector<std::atomic<int64_t>> waited_ns_;
};

}  // namespace lockstep::comm
