#include "data/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::data {
namespace {

constexpr int kBits = 22;      // of a weight behind the point, as in Pillow
constexpr int kSplit = 11;     // where a weight is divided in two
constexpr size_t kSlack = 64;  // bytes a vector may read behind a row

double Weight(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::kBilinear) return x < 1 ? 1 - x : 0;
  constexpr double kCubic = -0.5;
  if (x < 1) return ((kCubic + 2) * x - (kCubic + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kCubic;
  return 0;
}

uint8_t Clip(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

constexpr int32_t kHalf = 1 << (kBits - 1);

}  // namespace

// Each step, also the order of its operations, is Pillow's.
Resample::Axis Resample::MakeAxis(Filter filter, int from, int to) {
  Axis axis;
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = (filter == Filter::kBilinear ? 1.0 : 2.0) * stretch;
  const double shrink = 1.0 / stretch;
  const int most = static_cast<int>(std::ceil(support)) * 2 + 1;
  axis.groups = (most + 3) / 4;
  axis.weights.assign(static_cast<size_t>(to) * axis.groups * 4, 0);
  std::vector<double> exact(most);
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(static_cast<int>(centre - support + 0.5), 0);             // NOLINT(bugprone-*)
    const int count = std::min(static_cast<int>(centre + support + 0.5), from) - first;  // NOLINT(bugprone-*)
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      exact[k] = Weight(filter, (k + first - centre + 0.5) * shrink);
      sum += exact[k];
    }
    for (int k = 0; k < count; ++k) {
      const double weight = (sum != 0 ? exact[k] / sum : exact[k]) * (1 << kBits);
      axis.weights[static_cast<size_t>(i) * axis.groups * 4 + k] =
          static_cast<int32_t>(weight + (weight < 0 ? -0.5 : 0.5));
    }
    axis.first.push_back(first);
    axis.count.push_back(count);
  }
  for (const int32_t weight : axis.weights) {
    axis.low.push_back(static_cast<int16_t>(weight & ((1 << kSplit) - 1)));
    axis.high.push_back(static_cast<int16_t>(weight >> kSplit));
  }
  return axis;
}

Resample::Resample(Filter filter, int from_width, int from_height, int width, int height, bool simd)
    : from_width_(from_width),
      from_height_(from_height),
      width_(width),
      height_(height),
      across_(MakeAxis(filter, from_width, width)),
      down_(MakeAxis(filter, from_height, height)),
      row_bytes_((static_cast<size_t>(width) * 3 + kSlack) / kSlack * kSlack),
      line_((static_cast<size_t>(from_width) * 3 + kSlack) * kRowsAtOnce),
      rows_(row_bytes_ * (static_cast<size_t>(from_height) + down_.groups * 4)),
      out_(row_bytes_) {
#if defined(__x86_64__)
  simd_ = simd && __builtin_cpu_supports("avx2") != 0;
#else
  simd_ = false && simd;
#endif
}

void Resample::Across(const uint8_t* line, uint8_t* to) const {
  for (int x = 0; x < width_; ++x, to += 3) {
    const int32_t* weight = across_.weights.data() + static_cast<size_t>(x) * across_.groups * 4;
    const uint8_t* pixel = line + static_cast<size_t>(across_.first[x]) * 3;
    int32_t sum[3] = {kHalf, kHalf, kHalf};
    for (int k = 0; k < across_.count[x]; ++k, pixel += 3) {
      for (int c = 0; c < 3; ++c) sum[c] += pixel[c] * weight[k];
    }
    for (int c = 0; c < 3; ++c) to[c] = Clip(sum[c]);
  }
}

void Resample::Down(int y, uint8_t* to) const {
  const int32_t* weight = down_.weights.data() + static_cast<size_t>(y) * down_.groups * 4;
  const uint8_t* from = rows_.data() + row_bytes_ * down_.first[y];
  for (size_t i = 0; i < static_cast<size_t>(width_) * 3; ++i) {
    int32_t sum = kHalf;
    for (int k = 0; k < down_.count[y]; ++k) sum += from[k * row_bytes_ + i] * weight[k];
    to[i] = Clip(sum);
  }
}

#if defined(__x86_64__)
// Products of bytes and 22-bit weights do not fit the fast multiplication of 16-bit pairs, so weights come in two parts
// and two sums are kept: sum = high * 2^11 + low. All of it is exact, so the bits are those of the plain loops.
__attribute__((target("avx2"))) void Resample::AcrossAvx2(const std::array<const uint8_t*, kRowsAtOnce>& lines,
                                                          uint8_t* to) const {
  // Four pixels of three bytes -> pairs of 16 bits: r0 r1 g0 g1 b0 b1 - - | r2 r3 g2 g3 b2 b3 - -.
  const __m256i spread = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7, -1,
                                          10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  // Four weights -> w0 w1 four times | w2 w3 four times.
  const __m256i repeat =
      _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  const __m128i gather = _mm_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  for (int x = 0; x < width_; ++x, to += 3) {
    const size_t first = static_cast<size_t>(across_.first[x]) * 3;
    const size_t at = static_cast<size_t>(x) * across_.groups * 4;
    __m256i low[kRowsAtOnce], high[kRowsAtOnce];
    for (int r = 0; r < kRowsAtOnce; ++r) low[r] = high[r] = _mm256_setzero_si256();
    const int groups = (across_.count[x] + 3) / 4;
    for (int g = 0; g < groups; ++g) {
      long long part = 0;  // NOLINT: the intrinsic's type
      std::memcpy(&part, across_.low.data() + at + g * 4, 8);
      const __m256i weight_low = _mm256_shuffle_epi8(_mm256_set1_epi64x(part), repeat);
      std::memcpy(&part, across_.high.data() + at + g * 4, 8);
      const __m256i weight_high = _mm256_shuffle_epi8(_mm256_set1_epi64x(part), repeat);
      for (int r = 0; r < kRowsAtOnce; ++r) {
        const auto* pixel = reinterpret_cast<const __m128i*>(lines[r] + first + static_cast<size_t>(g) * 12);
        const __m256i pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(pixel)), spread);
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pixels, weight_low));
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pixels, weight_high));
      }
    }
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high[r], kSplit), low[r]);
      __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(kHalf)), kBits);
      sum = _mm_min_epi32(_mm_max_epi32(sum, _mm_setzero_si128()), _mm_set1_epi32(255));
      const int32_t rgb = _mm_cvtsi128_si32(_mm_shuffle_epi8(sum, gather));
      // The fourth byte is written over by the next pixel, or lies behind the row, which is never full.
      std::memcpy(to + row_bytes_ * r, &rgb, 4);
    }
  }
}

__attribute__((target("avx2"))) void Resample::DownAvx2(int y, uint8_t* to) const {
  const size_t at = static_cast<size_t>(y) * down_.groups * 4;
  const uint8_t* from = rows_.data() + row_bytes_ * down_.first[y];
  const __m256i zero = _mm256_setzero_si256();
  for (size_t i = 0; i < row_bytes_; i += 32) {
    __m256i low[4] = {zero, zero, zero, zero}, high[4] = {zero, zero, zero, zero};
    // Weights behind the last one are zero, and rows behind the last one are there.
    for (int k = 0; k < down_.count[y]; k += 2) {
      const uint8_t* row = from + k * row_bytes_ + i;
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + row_bytes_));
      const __m256i ab = _mm256_unpacklo_epi8(a, b), cd = _mm256_unpackhi_epi8(a, b);
      const __m256i pairs[4] = {_mm256_unpacklo_epi8(ab, zero), _mm256_unpackhi_epi8(ab, zero),
                                _mm256_unpacklo_epi8(cd, zero), _mm256_unpackhi_epi8(cd, zero)};
      int32_t part = 0;
      std::memcpy(&part, down_.low.data() + at + k, 4);
      const __m256i weight_low = _mm256_set1_epi32(part);
      std::memcpy(&part, down_.high.data() + at + k, 4);
      const __m256i weight_high = _mm256_set1_epi32(part);
      for (int q = 0; q < 4; ++q) {
        low[q] = _mm256_add_epi32(low[q], _mm256_madd_epi16(pairs[q], weight_low));
        high[q] = _mm256_add_epi32(high[q], _mm256_madd_epi16(pairs[q], weight_high));
      }
    }
    __m256i sums[4];
    for (int q = 0; q < 4; ++q) {
      const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high[q], kSplit), low[q]);
      sums[q] = _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(kHalf)), kBits);
    }
    // Packing saturates, and undoes the unpacking within each half.
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), bytes);
  }
}
#else
void Resample::AcrossAvx2(const std::array<const uint8_t*, kRowsAtOnce>&, uint8_t*) const {}
void Resample::DownAvx2(int y, uint8_t* to) const { Down(y, to); }
#endif

void Resample::Apply(const uint8_t* rgb, size_t stride, uint8_t* planes) {
  for (int y = 0; !simd_ && y < from_height_; ++y) {
    Across(rgb + static_cast<size_t>(y) * stride, rows_.data() + row_bytes_ * y);
  }
  // Vectors read behind a row: into the next ones, or into the room behind a copy.
  const size_t line_bytes = static_cast<size_t>(from_width_) * 3;
  for (int y = 0; simd_ && y < from_height_; y += kRowsAtOnce) {
    std::array<const uint8_t*, kRowsAtOnce> lines;
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const int row = std::min(y + r, from_height_ - 1);  // behind the last one: computed and not used
      lines[r] = rgb + static_cast<size_t>(row) * stride;
      if (static_cast<size_t>(from_height_ - 1 - row) * stride >= kSlack) continue;
      uint8_t* copy = line_.data() + (line_bytes + kSlack) * r;
      std::copy_n(lines[r], line_bytes, copy);
      lines[r] = copy;
    }
    AcrossAvx2(lines, rows_.data() + row_bytes_ * y);
  }
  const size_t pixels = static_cast<size_t>(width_) * height_;
  for (int y = 0; y < height_; ++y) {
    simd_ ? DownAvx2(y, out_.data()) : Down(y, out_.data());
    uint8_t* to = planes + static_cast<size_t>(y) * width_;
    for (int x = 0; x < width_; ++x) {
      for (int c = 0; c < 3; ++c) to[c * pixels + x] = out_[x * 3 + c];
    }
  }
}

}  // namespace lockstep::data
