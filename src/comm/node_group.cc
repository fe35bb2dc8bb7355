#include "comm/node_group.h"

#include <fmt/format.h>
#include <sched.h>

#include "comm/shared_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::comm {
namespace {

// A sleeper looks up this often for a broken communicator; it is woken earlier by whoever breaks it.
constexpr std::chrono::milliseconds kNap{50};

// A peer that runs on another processor arrives within this time if it arrives at all soon.
constexpr std::chrono::microseconds kAlone{1};

inline void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Result<std::unique_ptr<NodeGroup>> NodeGroup::Create(int local_rank, int local_size, std::vector<UniqueFd> sockets,
                                                     size_t staging_bytes, std::chrono::microseconds spin,
                                                     Health* health, TimePoint deadline) {
  staging_bytes = (std::max<size_t>(staging_bytes, kSmallBytes) + 4095) / 4096 * 4096;
  std::unique_ptr<NodeGroup> group(
      new NodeGroup(local_rank, local_size, std::move(sockets), staging_bytes, spin, health));
  auto segments = group->Exchange(kHead + 2 * kSmallBytes + 4 * staging_bytes, deadline);
  if (!segments.ok()) return segments.status();
  group->segments_ = std::move(*segments);
  // A mapped copy of a peer's head keeps it alive; wake own sleep when the communicator breaks.
  health->OnBreak([segments = group->segments_] {
    for (const auto& segment : segments) FutexWakeAll(&reinterpret_cast<Shared*>(segment.get())->phase);
  });
  return group;
}

Result<std::vector<std::shared_ptr<std::byte>>> NodeGroup::Exchange(size_t bytes, TimePoint deadline) {
  auto own = MakeMemory(bytes);
  if (!own.ok()) return own.status();
  std::vector<UniqueFd> fds(At(size_));
  if (rank_ == 0) {
    fds[0] = std::move(*own);
    for (int r = 1; r < size_; ++r) {
      auto got = ReceiveFds(sockets_[At(r)].get(), 1, deadline);
      if (!got.ok()) return got.status();
      fds[At(r)] = std::move((*got)[0]);
    }
    std::vector<int> all;
    for (const UniqueFd& fd : fds) all.push_back(fd.get());
    for (int r = 1; r < size_; ++r) LOCKSTEP_RETURN_IF_ERROR(SendFds(sockets_[At(r)].get(), all, deadline));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(SendFds(sockets_[0].get(), {own->get()}, deadline));
    auto got = ReceiveFds(sockets_[0].get(), At(size_), deadline);
    if (!got.ok()) return got.status();
    fds = std::move(*got);
  }
  std::vector<std::shared_ptr<std::byte>> memory;
  for (const UniqueFd& fd : fds) {
    auto mapped = MapMemory(fd.get(), bytes);
    if (!mapped.ok()) return mapped.status();
    memory.push_back(std::move(*mapped));
  }
  return memory;
}

Status NodeGroup::Sync(TimePoint deadline) {
  if (size_ == 1) return {};
  Shared* own = Head(rank_);
  own->phase.store(++phase_, std::memory_order_seq_cst);
  if (own->sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(&own->phase);
  // Who is looked at later and is not there yet came last, of all: the wait was for it.
  int last = -1;
  const TimePoint start = Now();
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    bool slept = false;
    LOCKSTEP_RETURN_IF_ERROR(WaitFor(r, deadline, &slept));
    if (slept) last = r;
  }
  if (last >= 0) waited_ns_[At(last)].fetch_add((Now() - start).count(), std::memory_order_relaxed);
  return {};
}

Status NodeGroup::WaitFor(int r, TimePoint deadline, bool* slept) {
  Shared* head = Head(r);
  const auto there = [&](uint32_t value) { return static_cast<int32_t>(value - phase_) >= 0; };
  if (there(head->phase.load(std::memory_order_acquire))) return {};
  if (spin_.count() > 0) {
    const TimePoint start = Now();
    while (true) {
      for (int k = 0; k < 16; ++k) {
        Pause();
        if (there(head->phase.load(std::memory_order_acquire))) return {};
      }
      const auto spent = Now() - start;
      if (spent > spin_) break;
      // Longer than a peer that runs would need: it may be waiting for this very processor.
      if (spent > kAlone) sched_yield();
    }
  }
  *slept = true;  // what a spinning rank waits is not worth counting
  return Sleep(r, deadline);
}

Status NodeGroup::Sleep(int r, TimePoint deadline) {
  Shared* head = Head(r);
  const auto there = [&](uint32_t value) { return static_cast<int32_t>(value - phase_) >= 0; };
  while (true) {
    head->sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = head->phase.load(std::memory_order_seq_cst);
    if (!there(seen) && !health_->broken()) FutexWait(&head->phase, seen, kNap);
    head->sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (there(head->phase.load(std::memory_order_acquire))) return {};
    if (health_->broken()) return health_->status();
    if (Now() >= deadline) return Status(Code::kTimeout, "deadline");
  }
}

}  // namespace lockstep::comm
