// Resizing of 8-bit RGB as Pillow does it, bit for bit: Image.resize with BILINEAR or BICUBIC. Rows first, rounded to
// bytes, then columns, with weights of 22 bits; encoders that were trained on such pictures see what they saw. (Where
// columns shrink first, the result differs by a level here and there: in Pillow 13 if the height loses more than twice
// as many pixels as the width, before that if a picture is 100 times as high as wide.) Uses AVX2 where the processor
// has it, with the same bits as without. One thread at a time.
//
//   Resample resample(Filter::kBicubic, 640, 480, 224, 224);
//   resample.Apply(rgb, 640 * 3, planes);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

enum class Filter { kBilinear, kBicubic };

class Resample {
 public:
  Resample(Filter filter, int from_width, int from_height, int width, int height, bool simd = true);

  // rgb [from_height, from_width, 3], rows `stride` bytes apart -> planes [3, height, width].
  void Apply(const uint8_t* rgb, size_t stride, uint8_t* planes);

 private:
  // Weights of each output pixel: `count` of them from input pixel `first` on, in groups of four filled up with zeros.
  struct Axis {
    int groups = 0;  // of each output pixel
    std::vector<int> first, count;
    std::vector<int32_t> weights;    // [out, groups * 4]
    std::vector<int16_t> low, high;  // the same in two parts: weight = high * 2^11 + low, 0 <= low < 2^11
  };
  static Axis MakeAxis(Filter filter, int from, int to);
  void Across(const uint8_t* line, uint8_t* to) const;
  static constexpr int kRowsAtOnce = 4;  // weights are loaded once for all of them
  void AcrossAvx2(const std::array<const uint8_t*, kRowsAtOnce>& lines, uint8_t* to) const;
  void Down(int y, uint8_t* to) const;
  void DownAvx2(int y, uint8_t* to) const;

  int from_width_, from_height_, width_, height_;
  bool simd_;
  Axis across_, down_;
  size_t row_bytes_;                 // of a row of `rows_`, with at least one to spare
  std::vector<uint8_t> line_;        // copies of rows of the input, with room behind them
  std::vector<uint8_t> rows_, out_;  // [from_height, width, 3]; [width, 3]
};

}  // namespace lockstep::data
