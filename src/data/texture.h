// A surface's roughness: a square of numbers, about normal with mean 0 and variance 1, whose power falls with the
// square of the frequency as that of natural surfaces does. It continues seamlessly at its edges. Made once per clip,
// then looked up under any motion. Value type; one thread draws, any may look up.
#pragma once

#include <cstddef>
#include <vector>

#include "data/random.h"

namespace lockstep::data {

class Texture {
 public:
  // `side`: a power of two, in texels. `decay`: how strong an octave is beside the next coarser one; 1 gives power
  // 1/f^2, since an octave has four times the area of the one before.
  Texture(Random* random, int side, float decay);

  int side() const { return mask_ + 1; }

  // Bilinear, wrapping around. Coordinates in texels, above -65536.
  float At(float x, float y) const {
    x += kBias;
    y += kBias;
    const int x0 = static_cast<int>(x);
    const int y0 = static_cast<int>(y);
    const float fx = x - static_cast<float>(x0);
    const float fy = y - static_cast<float>(y0);
    const float* row = texels_.data() + (static_cast<size_t>(y0 & mask_) << shift_);
    const float* next = texels_.data() + (static_cast<size_t>((y0 + 1) & mask_) << shift_);
    const int left = x0 & mask_;
    const int right = (x0 + 1) & mask_;
    const float above = row[left] + (row[right] - row[left]) * fx;
    const float below = next[left] + (next[right] - next[left]) * fx;
    return above + (below - above) * fy;
  }

 private:
  static constexpr float kBias = 65536;  // a multiple of every side: makes coordinates positive

  void AddOctave(Random* random, int cells, float amplitude);

  int shift_ = 0;
  int mask_ = 0;
  std::vector<float> texels_;
};

// The same in one dimension and smoother, as outlines of hills are: `count` (a power of two) values in about [-1, 1].
std::vector<float> DrawOutline(Random* random, int count, int cells, float decay);

}  // namespace lockstep::data
