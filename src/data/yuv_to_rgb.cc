#include "data/yuv_to_rgb.h"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::data {
namespace {

constexpr int kSlack = 16;  // values a vector may read behind a row

int16_t Factor(int64_t value) {
  return static_cast<int16_t>(std::clamp<int64_t>((value * (1 << 13) + (1 << 15)) >> 16, -0x8000, 0x7fff));
}

// Sums as the library's: they wrap around for colours that do not exist.
uint8_t Level(int32_t y, int32_t colour) {
  const auto sum = static_cast<int32_t>((static_cast<uint32_t>(y) << 9) + (static_cast<uint32_t>(colour) << 1));
  return static_cast<uint8_t>(std::clamp(sum >> 22, 0, 255));
}

}  // namespace

YuvToRgb::YuvToRgb(int width, int height, const YuvMatrix& matrix, bool full_range, bool simd)
    : width_(width), height_(height) {
  const auto colour = [&](int64_t factor) { return Factor(full_range ? factor * 224 / 255 : factor); };
  factors_ = {Factor(full_range ? 1 << 16 : (1 << 16) * 255 / 219),
              full_range ? 0 : 16,
              colour(matrix.rv),
              colour(-matrix.gv),
              colour(-matrix.gu),
              colour(matrix.bu)};
#if defined(__x86_64__)
  simd_ = simd && __builtin_cpu_supports("avx2") != 0;
#else
  simd_ = false && simd;
#endif
}

// Values first - 1 to first + count, those beyond the border repeated.
void YuvToRgb::AddRows(const uint8_t* above, const uint8_t* below, int first, int count,
                       std::vector<uint16_t>* sums) const {
  const int last = width_ / 2 - 1;
  sums->resize(static_cast<size_t>(count) + 2 + kSlack);
  uint16_t* const to = sums->data() + 1;
  for (int k = 0; k < count; ++k) to[k] = static_cast<uint16_t>(above[first + k] + below[first + k]);
  const int left = std::max(first - 1, 0), right = std::min(first + count, last);
  to[-1] = static_cast<uint16_t>(above[left] + below[left]);
  to[count] = static_cast<uint16_t>(above[right] + below[right]);
}

void YuvToRgb::Row(const uint8_t* luma, int from, int to, uint8_t* rgb) const {
  for (int x = from; x < to; ++x) {
    // A quarter of the way towards the neighbour on this side; 128 times the mean of two rows of bytes, times 2.
    const int k = x / 2 + 1, beside = x % 2 == 0 ? k - 1 : k + 1;
    const int32_t u = u_[k] * 96 + u_[beside] * 32 - 32768, v = v_[k] * 96 + v_[beside] * 32 - 32768;
    const int32_t y = (luma[x] - factors_.black) * factors_.y + 4096;
    rgb[3 * x] = Level(y, v * factors_.vr);
    rgb[3 * x + 1] = Level(y, v * factors_.vg + u * factors_.ug);
    rgb[3 * x + 2] = Level(y, u * factors_.ub);
  }
}

#if defined(__x86_64__)
namespace {

// U or V of 16 pixels out of the sums of 8 and of those beside them.
__attribute__((target("avx2"))) inline void Between(const uint16_t* sums, __m128i* first, __m128i* second) {
  const auto load = [](const uint16_t* p) __attribute__((target("avx2"))) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  };
  const __m128i middle = _mm_mullo_epi16(load(sums), _mm_set1_epi16(96));
  const __m128i half = _mm_set1_epi16(-0x8000);
  const __m128i even = _mm_xor_si128(_mm_add_epi16(middle, _mm_slli_epi16(load(sums - 1), 5)), half);
  const __m128i odd = _mm_xor_si128(_mm_add_epi16(middle, _mm_slli_epi16(load(sums + 1), 5)), half);
  *first = _mm_unpacklo_epi16(even, odd);
  *second = _mm_unpackhi_epi16(even, odd);
}

// Four pixels of one colour: luma, and the products of V and U with its two factors.
__attribute__((target("avx2"))) inline __m128i Sum(__m128i y, __m128i vu, __m128i factors) {
  return _mm_srai_epi32(_mm_add_epi32(y, _mm_slli_epi32(_mm_madd_epi16(vu, factors), 1)), 22);
}

}  // namespace

__attribute__((target("avx2"))) void YuvToRgb::RowAvx2(const uint8_t* luma, int* from, int to, uint8_t* rgb) const {
  const auto pair = [](int32_t low, int32_t high) __attribute__((target("avx2"))) {
    return _mm_set1_epi32(
        static_cast<int32_t>((static_cast<uint32_t>(high) << 16) | (static_cast<uint32_t>(low) & 0xffff)));
  };
  const __m128i red = pair(factors_.vr, 0), green = pair(factors_.vg, factors_.ug), blue = pair(0, factors_.ub);
  const __m128i y_factor = pair(factors_.y, 64), black = _mm_set1_epi16(static_cast<int16_t>(factors_.black));
  const __m128i sixty_four = _mm_set1_epi16(64), zero = _mm_setzero_si128();
  // Where the bytes of 16 pixels of a colour go in three vectors.
  const __m128i r0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
  const __m128i g0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
  const __m128i b0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
  const __m128i r1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
  const __m128i g1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
  const __m128i b1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
  const __m128i r2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
  const __m128i g2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
  const __m128i b2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
  int x = *from;
  for (; x + 16 <= to; x += 16) {
    __m128i u[2], v[2], reds[2], greens[2], blues[2];
    Between(u_.data() + 1 + x / 2, &u[0], &u[1]);
    Between(v_.data() + 1 + x / 2, &v[0], &v[1]);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(luma + x));
    for (int half = 0; half < 2; ++half) {
      const __m128i level =
          _mm_sub_epi16(half == 0 ? _mm_unpacklo_epi8(bytes, zero) : _mm_unpackhi_epi8(bytes, zero), black);
      const __m128i y_low = _mm_slli_epi32(_mm_madd_epi16(_mm_unpacklo_epi16(level, sixty_four), y_factor), 9);
      const __m128i y_high = _mm_slli_epi32(_mm_madd_epi16(_mm_unpackhi_epi16(level, sixty_four), y_factor), 9);
      const __m128i low = _mm_unpacklo_epi16(v[half], u[half]), high = _mm_unpackhi_epi16(v[half], u[half]);
      reds[half] = _mm_packs_epi32(Sum(y_low, low, red), Sum(y_high, high, red));
      greens[half] = _mm_packs_epi32(Sum(y_low, low, green), Sum(y_high, high, green));
      blues[half] = _mm_packs_epi32(Sum(y_low, low, blue), Sum(y_high, high, blue));
    }
    // Packing saturates.
    const __m128i r = _mm_packus_epi16(reds[0], reds[1]), g = _mm_packus_epi16(greens[0], greens[1]);
    const __m128i b = _mm_packus_epi16(blues[0], blues[1]);
    const auto store = [&](int at, __m128i mr, __m128i mg, __m128i mb) __attribute__((target("avx2"))) {
      const __m128i all =
          _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, mr), _mm_shuffle_epi8(g, mg)), _mm_shuffle_epi8(b, mb));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(rgb + 3 * static_cast<ptrdiff_t>(x) + at), all);
    };
    store(0, r0, g0, b0);
    store(16, r1, g1, b1);
    store(32, r2, g2, b2);
  }
  *from = x;
}
#else
void YuvToRgb::RowAvx2(const uint8_t*, int*, int, uint8_t*) const {}
#endif

void YuvToRgb::Apply(const std::array<const uint8_t*, 3>& planes, const std::array<ptrdiff_t, 3>& strides,
                     const Window& part, uint8_t* rgb, size_t stride) {
  const int last = height_ / 2 - 1, first = part.x / 2, count = (part.width + 1) / 2;
  for (int row = 0; row < part.height; ++row) {
    const int y = part.y + row, k = y / 2;
    // An even row lies between two of colour and gets their mean; an odd one is given that of its own, but for the
    // last one, which gets the mean of the last two.
    const bool mean = y == 2 * last + 1 ? last > 0 : y % 2 == 0 && k > 0;
    const int above = mean ? k - 1 : k;
    AddRows(planes[1] + above * strides[1], planes[1] + k * strides[1], first, count, &u_);
    AddRows(planes[2] + above * strides[2], planes[2] + k * strides[2], first, count, &v_);
    const uint8_t* luma = planes[0] + y * strides[0] + part.x;
    uint8_t* to = rgb + static_cast<size_t>(row) * stride;
    int from = 0;
    if (simd_) RowAvx2(luma, &from, part.width, to);
    Row(luma, from, part.width, to);
  }
}

}  // namespace lockstep::data
