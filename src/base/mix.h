// Mixing of 64-bit numbers, for random numbers that are a pure function of a key and a counter. Any thread.
#pragma once

#include <cstdint>

namespace lockstep {

// A bijection of 64 bits in which every input bit reaches every output bit (finalizer of SplitMix64).
constexpr uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

}  // namespace lockstep
