// From 8-bit YUV 4:2:0 to packed RGB with the bits of FFmpeg's libswscale (SWS_BILINEAR | SWS_ACCURATE_RND |
// SWS_FULL_CHR_H_INT), for any part of a frame. Nearly all video files are of this kind, and with AVX2 it takes a
// twentieth of the library's time; without, the bits are the same. One thread at a time.
//
//   YuvToRgb convert(1280, 720, {.rv = 117489, .bu = 138438, .gu = 13975, .gv = 34925}, /*full_range=*/false);
//   convert.Apply({luma, u, v}, {1280, 640, 640}, {0, 0, 1280, 720}, rgb, 1280 * 3);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/image.h"

namespace lockstep::data {

// What sws_getCoefficients gives for a colour space, in its order: the parts of V in red, of U in blue, of U and of V
// in green (these two are subtracted), times 65536.
struct YuvMatrix {
  int rv = 0, bu = 0, gu = 0, gv = 0;
};

class YuvToRgb {
 public:
  // Of frames of even width and height. `full_range`: 0 to 255 are black and white, else 16 and 235.
  YuvToRgb(int width, int height, const YuvMatrix& matrix, bool full_range, bool simd = true);

  // Planes of a whole frame, with the distance of their rows -> the pixels of `part` at rgb, rows `stride` bytes apart.
  // part.x is even.
  void Apply(const std::array<const uint8_t*, 3>& planes, const std::array<ptrdiff_t, 3>& strides, const Window& part,
             uint8_t* rgb, size_t stride);

 private:
  // Factors of a pixel, 13 bits behind the point.
  struct Factors {
    int32_t y = 0, black = 0, vr = 0, vg = 0, ug = 0, ub = 0;
  };
  void AddRows(const uint8_t* above, const uint8_t* below, int first, int count, std::vector<uint16_t>* sums) const;
  void Row(const uint8_t* luma, int from, int to, uint8_t* rgb) const;
  void RowAvx2(const uint8_t* luma, int* from, int to, uint8_t* rgb) const;

  int width_, height_;
  Factors factors_;
  bool simd_;
  // Of U and V, for the part's columns and one beside it: the sum of the two rows that a row of pixels lies between.
  std::vector<uint16_t> u_, v_;
};

}  // namespace lockstep::data
