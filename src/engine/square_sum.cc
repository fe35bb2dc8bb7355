#include "engine/square_sum.h"

#include <bit>
#include <cmath>
#include <limits>

#include "engine/kernels.h"

namespace lockstep::engine {
namespace {

constexpr size_t kBlock = kernels::kSquareBlock;
constexpr size_t kBlocksAtOnce = 256;
// A limb's lowest bit is 2^(32 * limb - kPoint). The smallest square of a float32 is 2^-298, with 52 more bits below it
// in a sum; the largest sum of a block is below 2^261.
constexpr int kPoint = 384;
constexpr int64_t kCarryAfter = int64_t{1} << 30;  // a limb grows by less than 2^32 with each addition

}  // namespace

void SquareSum::Add(const float* values, size_t n) {
  double sums[kBlocksAtOnce];
  while (n > 0) {
    const size_t some = n < kBlocksAtOnce * kBlock ? n : kBlocksAtOnce * kBlock;
    const size_t blocks = kernels::BlockSquares(values, some, sums);
    for (size_t i = 0; i < blocks; ++i) AddBlock(sums[i]);
    values += some;
    n -= some;
  }
}

void SquareSum::AddBlock(double sum) {
  if (sum == 0) return;
  const auto bits = std::bit_cast<uint64_t>(sum);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (exponent == 0x7ff) {
    ++not_finite_;
    return;
  }
  // A sum of squares is never so small that its double would be subnormal.
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const auto position = static_cast<unsigned>(exponent - 1075 + kPoint);
  const unsigned shift = position % 32;
  const size_t limb = position / 32;
  const auto wide = static_cast<unsigned __int128>(mantissa) << shift;
  limbs_[limb] += static_cast<int64_t>(static_cast<uint64_t>(wide) & 0xffffffff);
  limbs_[limb + 1] += static_cast<int64_t>(static_cast<uint64_t>(wide >> 32) & 0xffffffff);
  limbs_[limb + 2] += static_cast<int64_t>(static_cast<uint64_t>(wide >> 64));
  if (++pending_ == kCarryAfter) Carry();
}

void SquareSum::Carry() {
  for (size_t i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i + 1] += limbs_[i] >> 32;
    limbs_[i] &= 0xffffffff;
  }
  pending_ = 0;
}

void SquareSum::Add(const SquareSum& other) {
  SquareSum carried = other;
  carried.Carry();
  Carry();
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += carried.limbs_[i];
  not_finite_ += other.not_finite_;
  pending_ = 2;
}

double SquareSum::Norm() const {
  if (not_finite_ > 0) return std::numeric_limits<double>::quiet_NaN();
  SquareSum carried = *this;
  carried.Carry();
  double sum = 0;
  for (size_t i = kLimbs; i-- > 0;) {
    sum += std::ldexp(static_cast<double>(carried.limbs_[i]), 32 * static_cast<int>(i) - kPoint);
  }
  return std::sqrt(sum);
}

std::array<int64_t, SquareSum::kWords> SquareSum::ToWords() const {
  SquareSum carried = *this;
  carried.Carry();
  std::array<int64_t, kWords> words;
  for (size_t i = 0; i < kLimbs; ++i) words[i] = carried.limbs_[i];
  words[kLimbs] = not_finite_;
  return words;
}

SquareSum SquareSum::FromWords(const std::array<int64_t, kWords>& words) {
  SquareSum sum;
  for (size_t i = 0; i < kLimbs; ++i) sum.limbs_[i] = words[i];
  sum.not_finite_ = words[kLimbs];
  sum.pending_ = 1;
  return sum;
}

}  // namespace lockstep::engine
