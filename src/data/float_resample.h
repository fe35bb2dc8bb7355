// Resizing of float pictures as torch's interpolate(antialias=True, align_corners=False) does it on a CPU, within one
// ulp: float32 weights, rows before columns, and sums in the order of torch's kernels for AVX2 and AVX-512 (which
// differ from its plain kernels in the last bits). Const members may be called from any thread at once.
//
//   FloatResample resample(Filter::kBicubic, 640, 480, 224, 224);
//   resample.Apply(plane, out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/resample.h"

namespace lockstep::data {

// An output value is a weighted sum of `count` input values from `first` on; its weights begin at `at`.
struct FloatTap {
  int first = 0, count = 0;
  size_t at = 0;
};

class FloatResample {
 public:
  FloatResample(Filter filter, int from_width, int from_height, int width, int height);

  // [from_height, from_width] -> [height, width].
  void Apply(const float* plane, float* out) const;
  // One row of from_width values -> width.
  void Across(const float* line, float* to) const;
  // Two rows of from_width RGB pixels -> two of width pixels, each four values of which the last is not used. `line` is
  // room for 8 * from_width values, aligned as what `new` gives.
  void AcrossPixels(const uint8_t* a, const uint8_t* b, float* line, float* first, float* second) const;
  // Row y of the result: of from_height rows of `row` values each, one after the other -> `row` values.
  void Down(const float* rows, size_t row, int y, float* to) const;

 private:
  struct Axis {
    std::vector<FloatTap> taps;
    std::vector<float> weights;
  };
  static Axis MakeAxis(Filter filter, int from, int to);

  int from_width_, from_height_, width_, height_;
  bool fused_;  // the processor multiplies and adds with one rounding
  Axis across_, down_;
};

}  // namespace lockstep::data
