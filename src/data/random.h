// Random numbers as a pure function of a key: no state outlives a sample, so the same sample draws the same numbers on
// any rank, thread and world size. Counter-based: number n of a key is a mix of (key, n). Value type, one thread at a
// time.
#pragma once

#include <cstdint>

#include "base/mix.h"

namespace lockstep::data {

// Folds a value into a key; the order of folding matters.
constexpr uint64_t Fold(uint64_t key, uint64_t value) { return Mix((key + kGolden) ^ Mix(value + kGolden)); }

// What a stream of numbers is for. Streams of different purpose are independent, so that drawing one number more for
// one purpose does not move the others.
enum class Purpose : uint64_t { kOrder = 1, kSplit, kTime, kCrop, kFlip, kColour, kScene, kText };

class Random {
 public:
  explicit constexpr Random(uint64_t key) : key_(key) {}
  constexpr Random(uint64_t seed, uint64_t epoch, uint64_t index, Purpose purpose)
      : key_(Fold(Fold(Fold(Fold(0, seed), epoch), index), static_cast<uint64_t>(purpose))) {}

  constexpr uint64_t Next() { return Mix(key_ + kGolden * ++counter_); }
  // In [0, 1), 53 bits.
  constexpr double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  constexpr double Uniform(double low, double high) { return low + (high - low) * Uniform(); }
  constexpr bool Chance(double probability) { return Uniform() < probability; }
  // In [0, n), every value equally likely; 0 for n = 0.
  constexpr uint64_t Below(uint64_t n) {
    if (n == 0) return 0;
    const uint64_t reject = (0 - n) % n;  // 2^64 mod n
    for (;;) {
      const uint64_t x = Next();
      if (x >= reject) return x % n;
    }
  }
  // In [low, high], both ends included.
  constexpr int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }

 private:
  uint64_t key_;
  uint64_t counter_ = 0;
};

}  // namespace lockstep::data
