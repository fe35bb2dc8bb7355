// A sum of squares of float32 numbers that does not depend on how they are spread over ranks, threads and buckets: so
// the gradient norm, and what clipping makes of it, has the same bits under every stage of ZeRO. Blocks of 16 numbers
// are added in a fixed order; the blocks' sums are added exactly, in a fixed-point number that is wide enough for all.
// A plain value; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::engine {

class SquareSum {
 public:
  // `n` is a multiple of 16, or the last block counts as if it were filled up with zeros.
  void Add(const float* values, size_t n);
  void Add(const SquareSum& other);

  // Infinite or not a number where some value was.
  double Norm() const;

  // For a sum over ranks: integers that are added one by one.
  static constexpr size_t kWords = 22;
  std::array<int64_t, kWords> ToWords() const;
  static SquareSum FromWords(const std::array<int64_t, kWords>& words);

 private:
  void AddBlock(double sum);
  void Carry();

  static constexpr size_t kLimbs = kWords - 1;  // 32 bits each, the lowest first
  std::array<int64_t, kLimbs> limbs_ = {};
  int64_t not_finite_ = 0;  // blocks
  int64_t pending_ = 0;     // additions since the last carry
};

}  // namespace lockstep::engine
