// The way of scalars from the training threads to the writer: a bounded queue for many producers and one consumer,
// after Vyukov: every slot carries a turn, a producer claims one by a single compare-exchange and never waits for
// another. Fixed memory, no lock, no system call. A full ring refuses, so that training never waits for a disk.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::track {

struct RingItem {
  uint64_t step = 0;
  double value = 0;
  uint32_t id = 0;
};

class Ring {
 public:
  explicit Ring(size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity) - 1), slots_(std::make_unique<Slot[]>(mask_ + 1)) {
    for (size_t i = 0; i <= mask_; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }

  size_t capacity() const { return mask_ + 1; }

  // Any thread. False: full.
  bool Push(const RingItem& item) {
    uint64_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[at & mask_];
      const uint64_t turn = slot.turn.load(std::memory_order_acquire);
      if (turn == at) {
        if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_acq_rel, std::memory_order_relaxed)) continue;
        slot.item = item;
        slot.turn.store(at + 1, std::memory_order_release);
        return true;
      }
      if (turn < at) return false;
      at = tail_.load(std::memory_order_relaxed);
    }
  }

  // How many items producers have claimed so far, and how many the consumer has taken.
  uint64_t claimed() const { return tail_.load(std::memory_order_acquire); }
  uint64_t taken() const { return head_; }

  // The consumer. False: empty, or the next producer has not finished.
  bool Pop(RingItem* item) {
    Slot& slot = slots_[head_ & mask_];
    if (slot.turn.load(std::memory_order_acquire) != head_ + 1) return false;
    *item = slot.item;
    slot.turn.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

 private:
  struct alignas(32) Slot {
    std::atomic<uint64_t> turn{0};
    RingItem item;
  };

  const size_t mask_;
  std::unique_ptr<Slot[]> slots_;
  alignas(64) std::atomic<uint64_t> tail_{0};
  alignas(64) uint64_t head_ = 0;
};

}  // namespace lockstep::track
