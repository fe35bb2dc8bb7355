#include "engine/kernels.h"

#include <bit>
#include <cmath>
#include <cstring>

// One copy of each loop per instruction set, bound by the loader. Elsewhere the compiler's own target is all there is.
#if defined(__x86_64__) && defined(__gnu_linux__)
#define LOCKSTEP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define LOCKSTEP_CLONES
#endif

namespace lockstep::engine::kernels {
namespace {

#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

LOCKSTEP_INLINE float Read(float x) { return x; }
LOCKSTEP_INLINE float Read(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }

LOCKSTEP_INLINE uint16_t ToBf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t even = (bits >> 16) & 1;
  return static_cast<uint16_t>(x == x ? (bits + 0x7fff + even) >> 16 : (bits >> 16) | 0x40);
}

template <bool kWritesBf16, typename Gradient>
LOCKSTEP_INLINE void AdamLoop(float* __restrict p, const Gradient* __restrict g, float* __restrict m,
                              float* __restrict v, uint16_t* __restrict bf16, size_t n, const AdamStep& step) {
  const AdamStep s = step;
  const float rate = s.lr / s.correction1;
  for (size_t i = 0; i < n; ++i) {
    const float gradient = Read(g[i]) * s.gradient + s.l2 * p[i];
    const float first = m[i] + (1 - s.beta1) * (gradient - m[i]);
    const float second = v[i] * s.beta2 + (1 - s.beta2) * gradient * gradient;
    m[i] = first;
    v[i] = second;
    const float moved = p[i] * s.decay - rate * first / (std::sqrt(second) / s.correction2 + s.epsilon);
    p[i] = moved;
    if constexpr (kWritesBf16) bf16[i] = ToBf16(moved);
  }
}

}  // namespace

LOCKSTEP_CLONES void Adam(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
                          size_t n, const AdamStep& step) {
  AdamLoop<false>(p, g, m, v, nullptr, n, step);
}

LOCKSTEP_CLONES void AdamToBf16(float* __restrict p, const float* __restrict g, float* __restrict m,
                                float* __restrict v, uint16_t* __restrict bf16, size_t n, const AdamStep& step) {
  AdamLoop<true>(p, g, m, v, bf16, n, step);
}

LOCKSTEP_CLONES void AdamFromBf16(float* __restrict p, const uint16_t* __restrict g, float* __restrict m,
                                  float* __restrict v, uint16_t* __restrict bf16, size_t n, const AdamStep& step) {
  AdamLoop<true>(p, g, m, v, bf16, n, step);
}

LOCKSTEP_CLONES void Sgd(float* __restrict p, const float* __restrict g, float* __restrict momentum, size_t n,
                         const SgdStep& step) {
  const SgdStep s = step;
  if (momentum == nullptr) {
    for (size_t i = 0; i < n; ++i) p[i] -= s.lr * (g[i] * s.gradient + s.l2 * p[i]);
    return;
  }
  const float keep = s.first ? 0.0F : s.momentum;
  const float look_ahead = s.nesterov ? s.momentum : 1.0F;
  const float direct = s.nesterov ? 1.0F : 0.0F;
  for (size_t i = 0; i < n; ++i) {
    const float gradient = g[i] * s.gradient + s.l2 * p[i];
    const float moved = keep * momentum[i] + gradient;
    momentum[i] = moved;
    p[i] -= s.lr * (direct * gradient + look_ahead * moved);
  }
}

LOCKSTEP_CLONES void Average(float* __restrict average, const float* __restrict p, size_t n, float decay) {
  for (size_t i = 0; i < n; ++i) average[i] += (1 - decay) * (p[i] - average[i]);
}

// Products of two float32 numbers are exact in double, so that a fused multiply-add has the same result. Vectors of one
// block are written out: left to itself, the compiler takes eight blocks at once and gathers every number for itself.
LOCKSTEP_CLONES size_t BlockSquares(const float* __restrict values, size_t n, double* __restrict sums) {
  using Floats = float __attribute__((vector_size(32)));
  using Doubles = double __attribute__((vector_size(64)));
  const size_t whole = n / kSquareBlock;
  for (size_t block = 0; block < whole; ++block) {
    Floats low, high;
    std::memcpy(&low, values + block * kSquareBlock, sizeof low);
    std::memcpy(&high, values + block * kSquareBlock + 8, sizeof high);
    const Doubles a = __builtin_convertvector(low, Doubles), b = __builtin_convertvector(high, Doubles);
    const Doubles lanes = a * a + b * b;
    sums[block] = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  }
  if (whole * kSquareBlock == n) return whole;
  float rest[kSquareBlock] = {};
  for (size_t k = whole * kSquareBlock; k < n; ++k) rest[k % kSquareBlock] = values[k];
  return whole + BlockSquares(rest, kSquareBlock, sums + whole);
}

}  // namespace lockstep::engine::kernels
