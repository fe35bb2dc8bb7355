#include "data/float_resample.h"

#include <algorithm>
#include <cmath>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Compiled with -ffp-contract=off: which products are fused with their sums is written out, as torch's compiler did it.
namespace lockstep::data {
namespace {

// Keys' cubic with a = -0.5, as torch and Pillow have it for antialias.
float Cubic(float x) {
  constexpr float kA = -0.5f;
  x = std::fabs(x);
  if (x < 1) return std::fma(std::fma(kA + 2, x, -(kA + 3)) * x, x, 1.0f);
  if (x < 2) return std::fma(std::fma(std::fma(kA, x, -5 * kA), x, 8 * kA), x, -4 * kA);
  return 0;
}

float Triangle(float x) {
  x = std::fabs(x);
  return x < 1 ? 1 - x : 0;
}

// Torch's compiler multiplies four values at once and adds their products one by one; what is left over is fused.
constexpr int kTogether = 4;

// A value, or the four values of a pixel: the same operations on each of them.
typedef float Pixel __attribute__((vector_size(16)));

#define LOCKSTEP_INLINE __attribute__((always_inline)) inline

LOCKSTEP_INLINE float Fused(float a, float b, float c) { return std::fma(a, b, c); }
LOCKSTEP_INLINE Pixel Fused(Pixel a, float b, Pixel c) {
  return Pixel{std::fma(a[0], b, c[0]), std::fma(a[1], b, c[1]), std::fma(a[2], b, c[2]), 0};
}

// Of every `step`-th value.
template <typename Value>
LOCKSTEP_INLINE Value WeightedSum(const Value* values, const float* weights, int count, int step = 1) {
  Value sum = values[0] * weights[0];
  int j = 1;
  for (; j + kTogether <= count; j += kTogether) {
    for (int k = j; k < j + kTogether; ++k) sum += values[k * step] * weights[k];
  }
  for (; j < count; ++j) sum = Fused(values[j * step], weights[j], sum);
  return sum;
}

LOCKSTEP_INLINE void SumsOfValues(std::span<const FloatTap> taps, const float* weights, const float* line, float* to) {
  for (const FloatTap& tap : taps) *to++ = WeightedSum(line + tap.first, weights + tap.at, tap.count);
}

// Of two rows of pixels at once, [width, 2, 4].
void SumsOfPairs(std::span<const FloatTap> taps, const float* weights, const float* line, float* first, float* second) {
  const auto* pixels = reinterpret_cast<const Pixel*>(line);
  for (const FloatTap& tap : taps) {
    const Pixel* const from = pixels + static_cast<size_t>(tap.first) * 2;
    const Pixel sums[2] = {WeightedSum(from, weights + tap.at, tap.count, 2),
                           WeightedSum(from + 1, weights + tap.at, tap.count, 2)};
    for (int c = 0; c < 4; ++c) *first++ = sums[0][c], *second++ = sums[1][c];
  }
}

void Spread(const uint8_t* rgb, int begin, int end, float* to) {
  for (int x = begin; x < end; ++x) {
    for (int c = 0; c < 3; ++c) to[8 * x + c] = static_cast<float>(rgb[3 * x + c]);
    to[8 * x + 3] = 0;
  }
}

// The same for `row` sums side by side, over rows.
LOCKSTEP_INLINE void WeightedRows(const float* rows, size_t row, const float* weights, int count, float* to) {
  for (size_t x = 0; x < row; ++x) to[x] = rows[x] * weights[0];
  int j = 1;
  for (; j + kTogether <= count; j += kTogether) {
    const float* const r = rows + static_cast<size_t>(j) * row;
    for (size_t x = 0; x < row; ++x) {
      float sum = to[x] + r[x] * weights[j];
      sum += r[row + x] * weights[j + 1];
      sum += r[2 * row + x] * weights[j + 2];
      to[x] = sum + r[3 * row + x] * weights[j + 3];
    }
  }
  for (; j < count; ++j) {
    const float* const r = rows + static_cast<size_t>(j) * row;
    for (size_t x = 0; x < row; ++x) to[x] = std::fma(r[x], weights[j], to[x]);
  }
}

#if defined(__x86_64__)
#define LOCKSTEP_FUSED __attribute__((target("avx2,fma")))
bool HasFusedMultiply() { return __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("avx2") != 0; }
#else
#define LOCKSTEP_FUSED
bool HasFusedMultiply() { return false; }
#endif

// The loops twice: with the processor's own instruction, and for one that has none.
LOCKSTEP_FUSED void SumsOfValuesFused(std::span<const FloatTap> taps, const float* weights, const float* line,
                                      float* to) {
  SumsOfValues(taps, weights, line, to);
}
LOCKSTEP_FUSED void WeightedRowsFused(const float* rows, size_t row, const float* weights, int count, float* to) {
  WeightedRows(rows, row, weights, count, to);
}

#if defined(__x86_64__)
LOCKSTEP_FUSED void SumsOfPairsFused(std::span<const FloatTap> taps, const float* weights, const float* line,
                                     float* first, float* second) {
  for (const FloatTap& tap : taps) {
    const float* const from = line + static_cast<size_t>(tap.first) * 8;
    const float* const weight = weights + tap.at;
    __m256 sum = _mm256_mul_ps(_mm256_loadu_ps(from), _mm256_broadcast_ss(weight));
    int j = 1;
    for (; j + kTogether <= tap.count; j += kTogether) {
      for (int k = j; k < j + kTogether; ++k) {
        sum = _mm256_add_ps(sum, _mm256_mul_ps(_mm256_loadu_ps(from + k * 8), _mm256_broadcast_ss(weight + k)));
      }
    }
    for (; j < tap.count; ++j) {
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(from + j * 8), _mm256_broadcast_ss(weight + j), sum);
    }
    _mm_storeu_ps(first, _mm256_castps256_ps128(sum));
    _mm_storeu_ps(second, _mm256_extractf128_ps(sum, 1));
    first += 4, second += 4;
  }
}

// Four pixels of each row at a time; vectors read four bytes behind them, so the last ones are left to the plain loop.
LOCKSTEP_FUSED int SpreadFused(const uint8_t* a, const uint8_t* b, int count, float* to) {
  const __m128i apart = _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1);
  int x = 0;
  for (; x + 6 <= count; x += 4) {
    const __m128i rows[2] = {
        _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + 3 * static_cast<size_t>(x))), apart),
        _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 3 * static_cast<size_t>(x))), apart)};
    // Pixels 0 and 1, then 2 and 3, of both rows in turns.
    const __m128i low = _mm_unpacklo_epi32(rows[0], rows[1]), high = _mm_unpackhi_epi32(rows[0], rows[1]);
    float* const out = to + 8 * static_cast<size_t>(x);
    _mm256_storeu_ps(out, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(low)));
    _mm256_storeu_ps(out + 8, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(low, 8))));
    _mm256_storeu_ps(out + 16, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(high)));
    _mm256_storeu_ps(out + 24, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(high, 8))));
  }
  return x;
}
#else
constexpr auto SumsOfPairsFused = SumsOfPairs;
int SpreadFused(const uint8_t*, const uint8_t*, int, float*) { return 0; }
#endif

}  // namespace

FloatResample::FloatResample(Filter filter, int from_width, int from_height, int width, int height)
    : from_width_(from_width),
      from_height_(from_height),
      width_(width),
      height_(height),
      fused_(HasFusedMultiply()),
      across_(MakeAxis(filter, from_width, width)),
      down_(MakeAxis(filter, from_height, height)) {}

// In float32, but for what torch adds 0.5 to: that is in double precision up to the filter.
FloatResample::Axis FloatResample::MakeAxis(Filter filter, int from, int to) {
  Axis axis;
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float half = filter == Filter::kBicubic ? 2 : 1;
  const float support = scale >= 1 ? half * scale : half;
  const float inverse = scale >= 1 ? 1 / scale : 1;
  for (int i = 0; i < to; ++i) {
    const float centre = scale * (static_cast<float>(i) + 0.5f);
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);
    const int count = std::min(static_cast<int>(centre + support + 0.5), from) - first;
    const FloatTap tap{first, count, axis.weights.size()};
    float total = 0;
    for (int j = 0; j < count; ++j) {
      const auto at = static_cast<float>((static_cast<float>(j + first) - centre + 0.5) * inverse);
      axis.weights.push_back(filter == Filter::kBicubic ? Cubic(at) : Triangle(at));
      total += axis.weights.back();
    }
    for (size_t k = tap.at; k < axis.weights.size() && total != 0; ++k) axis.weights[k] /= total;
    axis.taps.push_back(tap);
  }
  return axis;
}

void FloatResample::Across(const float* line, float* to) const {
  (fused_ ? SumsOfValuesFused : SumsOfValues)(across_.taps, across_.weights.data(), line, to);
}

void FloatResample::AcrossPixels(const uint8_t* a, const uint8_t* b, float* line, float* first, float* second) const {
  const int done = fused_ ? SpreadFused(a, b, from_width_, line) : 0;
  Spread(a, done, from_width_, line);
  Spread(b, done, from_width_, line + 4);
  (fused_ ? SumsOfPairsFused : SumsOfPairs)(across_.taps, across_.weights.data(), line, first, second);
}

void FloatResample::Down(const float* rows, size_t row, int y, float* to) const {
  const FloatTap& tap = down_.taps[y];
  const auto sums = fused_ ? WeightedRowsFused : WeightedRows;
  sums(rows + static_cast<size_t>(tap.first) * row, row, down_.weights.data() + tap.at, tap.count, to);
}

void FloatResample::Apply(const float* plane, float* out) const {
  std::vector<float> rows(static_cast<size_t>(from_height_) * width_);
  for (int y = 0; y < from_height_; ++y) {
    Across(plane + static_cast<size_t>(y) * from_width_, rows.data() + static_cast<size_t>(y) * width_);
  }
  for (int y = 0; y < height_; ++y) Down(rows.data(), width_, y, out + static_cast<size_t>(y) * width_);
}

}  // namespace lockstep::data
