#include "data/float_resample.h"

#include <algorithm>
#include <cmath>
#include <span>

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

template <typename Value>
LOCKSTEP_INLINE Value WeightedSum(const Value* values, const float* weights, int count) {
  Value sum = values[0] * weights[0];
  int j = 1;
  for (; j + kTogether <= count; j += kTogether) {
    for (int k = j; k < j + kTogether; ++k) sum += values[k] * weights[k];
  }
  for (; j < count; ++j) sum = Fused(values[j], weights[j], sum);
  return sum;
}

LOCKSTEP_INLINE void SumsOfValues(std::span<const FloatTap> taps, const float* weights, const float* line, float* to) {
  for (const FloatTap& tap : taps) *to++ = WeightedSum(line + tap.first, weights + tap.at, tap.count);
}

LOCKSTEP_INLINE void SumsOfPixels(std::span<const FloatTap> taps, const float* weights, const float* line, float* to) {
  const auto* pixels = reinterpret_cast<const Pixel*>(line);
  const size_t width = taps.size();
  for (size_t x = 0; x < width; ++x) {
    const Pixel sum = WeightedSum(pixels + taps[x].first, weights + taps[x].at, taps[x].count);
    for (size_t c = 0; c < 3; ++c) to[c * width + x] = sum[c];
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
LOCKSTEP_FUSED void SumsOfPixelsFused(std::span<const FloatTap> taps, const float* weights, const float* line,
                                      float* to) {
  SumsOfPixels(taps, weights, line, to);
}
LOCKSTEP_FUSED void WeightedRowsFused(const float* rows, size_t row, const float* weights, int count, float* to) {
  WeightedRows(rows, row, weights, count, to);
}

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

void FloatResample::AcrossPixels(const float* line, float* to) const {
  (fused_ ? SumsOfPixelsFused : SumsOfPixels)(across_.taps, across_.weights.data(), line, to);
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
