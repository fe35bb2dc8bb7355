// A source for tests of what handles sources: two fields whose content says which draw they came from, samples that
// fail on demand, and a gate at which reads can be held.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>

#include "data/random.h"
#include "data/source.h"

namespace lockstep::data {

class NumberSource final : public Source {
 public:
  explicit NumberSource(uint64_t size) : size_(size) {}

  const std::vector<Field>& fields() const override { return fields_; }
  uint64_t size() const override { return size_; }
  std::string Name(uint64_t index) const override { return fmt::format("number {}", index); }
  std::string Origin(uint64_t index) const override { return fmt::format("video {}", index / per_origin_); }
  std::string Describe() const override { return "numbers"; }
  std::string Digest() const override { return "xxh64:0"; }

  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    ++reads_;
    if (hold_ > 0) {
      std::unique_lock lock(mutex_);
      ++held_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return hold_ == 0 || (draw.cancelled != nullptr && *draw.cancelled); });
    }
    if (hanging_.contains(draw.index)) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return released_; });
    }
    // Uneven work, so that threads overtake each other.
    volatile uint64_t spin = 0;
    for (uint64_t i = Random(draw.index).Below(20'000); i > 0; --i) spin = spin + i;
    if (throwing_.contains(draw.index)) throw std::runtime_error("thrown");
    if (bad_.contains(draw.index)) {
      std::memset(out[0], 0xff, fields_[0].bytes());  // a part was written before it failed
      return Status(Code::kEnvironment, "damaged");
    }
    const int64_t numbers[2] = {static_cast<int64_t>(draw.index),
                                static_cast<int64_t>(draw.seed * 1000 + draw.epoch * 10 + (draw.augment ? 1 : 0))};
    std::memcpy(out[0], numbers, sizeof(numbers));
    std::memset(out[1], static_cast<int>(draw.index % 251), fields_[1].bytes());
    return Status::Ok();
  }

  void WaitUntilHeld(int reads) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_ >= reads; });
  }
  void Wake() const {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  // Lets reads of `hanging_` end.
  void Release() const {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  std::set<uint64_t> bad_;
  std::set<uint64_t> hanging_;  // reads of these do not end, whatever they are told
  std::set<uint64_t> throwing_;
  uint64_t per_origin_ = 1;
  std::atomic<int> hold_ = 0;
  mutable std::atomic<int> reads_ = 0;

 private:
  uint64_t size_;
  std::vector<Field> fields_{{"numbers", ElementType::kI64, {2}}, {"bytes", ElementType::kU8, {3, 5}}};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int held_ = 0;
  mutable bool released_ = false;
};

}  // namespace lockstep::data
