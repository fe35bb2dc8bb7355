// Procedural surfaces: a square RGB picture that continues seamlessly at its edges, drawn from random numbers. Made
// once per clip, then looked up under any motion. Value type; one thread draws, any may look up.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "data/random.h"

namespace lockstep::data {

struct Rgb {
  float r = 0;
  float g = 0;
  float b = 0;
};

inline Rgb Blend(const Rgb& from, const Rgb& to, float t) {
  return {from.r + (to.r - from.r) * t, from.g + (to.g - from.g) * t, from.b + (to.b - from.b) * t};
}

class Texture {
 public:
  // `side`: a power of two, in texels. `grain`: size of the coarsest feature in texels, roughly.
  Texture(Random* random, int side, float grain);

  int side() const { return mask_ + 1; }

  // Bilinear, wrapping around. Coordinates in texels, above -16384.
  Rgb At(float x, float y) const {
    x += kBias;
    y += kBias;
    const int x0 = static_cast<int>(x);
    const int y0 = static_cast<int>(y);
    const float fx = x - static_cast<float>(x0);
    const float fy = y - static_cast<float>(y0);
    const size_t row = static_cast<size_t>(y0 & mask_) << shift_;
    const size_t next_row = static_cast<size_t>((y0 + 1) & mask_) << shift_;
    const size_t column = x0 & mask_;
    const size_t next_column = (x0 + 1) & mask_;
    return Blend(Blend(texels_[row + column], texels_[row + next_column], fx),
                 Blend(texels_[next_row + column], texels_[next_row + next_column], fx), fy);
  }

 private:
  static constexpr float kBias = 16384;  // a multiple of every side: makes coordinates positive

  // Each fills level_ with a picture in [0, 1].
  void Noise(Random* random, float grain);
  void Stripes(Random* random, float grain, bool checker);
  void Waves(Random* random, float grain);
  void Glyphs(Random* random, float grain);
  void AddLattice(Random* random, int cells, float amplitude, std::vector<float>* to) const;

  int shift_ = 0;
  int mask_ = 0;
  std::vector<float> level_;
  std::vector<Rgb> texels_;
};

}  // namespace lockstep::data
