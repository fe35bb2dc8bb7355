#include "data/float_resample.h"

#include <algorithm>
#include <cmath>

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

__attribute__((always_inline)) inline float WeightedSum(const float* values, const float* weights, int count) {
  float sum = values[0] * weights[0];
  int j = 1;
  for (; j + kTogether <= count; j += kTogether) {
    for (int k = j; k < j + kTogether; ++k) sum += values[k] * weights[k];
  }
  for (; j < count; ++j) sum = std::fma(values[j], weights[j], sum);
  return sum;
}

// The same for `row` sums side by side, over rows.
__attribute__((always_inline)) inline void WeightedRows(const float* rows, size_t row, const float* weights, int count,
                                                        float* to) {
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
bool HasFusedMultiply() { return __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("avx2") != 0; }
__attribute__((target("avx2,fma"))) float WeightedSumFused(const float* values, const float* weights, int count) {
  return WeightedSum(values, weights, count);
}
__attribute__((target("avx2,fma"))) void WeightedRowsFused(const float* rows, size_t row, const float* weights,
                                                           int count, float* to) {
  WeightedRows(rows, row, weights, count, to);
}
#else
bool HasFusedMultiply() { return false; }
float WeightedSumFused(const float* values, const float* weights, int count) {
  return WeightedSum(values, weights, count);
}
void WeightedRowsFused(const float* rows, size_t row, const float* weights, int count, float* to) {
  WeightedRows(rows, row, weights, count, to);
}
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

// Every operation in float32, as torch computes it.
FloatResample::Axis FloatResample::MakeAxis(Filter filter, int from, int to) {
  Axis axis;
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float half = filter == Filter::kBicubic ? 2 : 1;
  const float support = scale >= 1 ? half * scale : half;
  const float inverse = scale >= 1 ? 1 / scale : 1;
  for (int i = 0; i < to; ++i) {
    const float centre = scale * (static_cast<float>(i) + 0.5f);
    const int first = std::max(static_cast<int>(centre - support + 0.5f), 0);
    const int count = std::min(static_cast<int>(centre + support + 0.5f), from) - first;
    const Tap tap{first, count, axis.weights.size()};
    float total = 0;
    for (int j = 0; j < count; ++j) {
      const float at = (static_cast<float>(j + first) - centre + 0.5f) * inverse;
      axis.weights.push_back(filter == Filter::kBicubic ? Cubic(at) : Triangle(at));
      total += axis.weights.back();
    }
    for (size_t k = tap.at; k < axis.weights.size() && total != 0; ++k) axis.weights[k] /= total;
    axis.taps.push_back(tap);
  }
  return axis;
}

void FloatResample::Across(const float* line, float* to) const {
  const auto sum = fused_ ? WeightedSumFused : WeightedSum;
  for (int x = 0; x < width_; ++x) {
    const Tap& tap = across_.taps[x];
    to[x] = sum(line + tap.first, across_.weights.data() + tap.at, tap.count);
  }
}

void FloatResample::Down(const float* rows, size_t row, int y, float* to) const {
  const Tap& tap = down_.taps[y];
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
