#include "data/texture.h"

#include <bit>
#include <cmath>

namespace lockstep::data {
namespace {

// Cells of the finest octave, in texels: finer ones would flicker when the surface moves by parts of a texel.
constexpr int kFinest = 2;

float Smooth(float t) { return t * t * (3 - 2 * t); }

// Between which points of the coarse grid each texel lies, and how far.
struct Places {
  std::vector<int> cell;
  std::vector<float> part;

  Places(int side, int cells) : cell(side), part(side) {
    const int shift = std::countr_zero(static_cast<unsigned>(side / cells));
    const float scale = 1.0f / static_cast<float>(side / cells);
    for (int i = 0; i < side; ++i) {
      cell[i] = i >> shift;
      part[i] = Smooth(static_cast<float>(i & (side / cells - 1)) * scale);
    }
  }
};

}  // namespace

Texture::Texture(Random* random, int side, float decay)
    : shift_(std::countr_zero(static_cast<unsigned>(side))), mask_(side - 1) {
  texels_.assign(static_cast<size_t>(side) * side, 0.0f);
  float total = 0;
  float amplitude = 1;
  for (int cells = 2; cells <= side / kFinest; cells *= 2, amplitude *= decay) total += amplitude * amplitude;
  // Uniform numbers in [-1, 1] have variance 1/3, of which interpolation keeps 0.55.
  amplitude = std::sqrt(3 / (0.55f * total));
  for (int cells = 2; cells <= side / kFinest; cells *= 2, amplitude *= decay) AddOctave(random, cells, amplitude);
}

void Texture::AddOctave(Random* random, int cells, float amplitude) {
  const int side = mask_ + 1;
  std::vector<float> points(static_cast<size_t>(cells) * cells);
  // Two numbers of 32 bits out of one of 64: most of the time goes into drawing.
  for (size_t i = 0; i < points.size(); i += 2) {
    const uint64_t both = random->Next();
    points[i] = amplitude * (static_cast<float>(static_cast<int32_t>(both)) * 0x1p-31f);
    points[i + 1] = amplitude * (static_cast<float>(static_cast<int32_t>(both >> 32)) * 0x1p-31f);
  }
  const Places places(side, cells);
  std::vector<float> line(cells + 1);
  std::vector<float> slope(cells);
  for (int y = 0; y < side; ++y) {
    const float* above = points.data() + static_cast<size_t>(places.cell[y]) * cells;
    const float* below = points.data() + static_cast<size_t>((places.cell[y] + 1) & (cells - 1)) * cells;
    for (int c = 0; c < cells; ++c) line[c] = above[c] + (below[c] - above[c]) * places.part[y];
    line[cells] = line[0];
    for (int c = 0; c < cells; ++c) slope[c] = line[c + 1] - line[c];
    float* out = texels_.data() + (static_cast<size_t>(y) << shift_);
    for (int x = 0; x < side; ++x) out[x] += line[places.cell[x]] + slope[places.cell[x]] * places.part[x];
  }
}

std::vector<float> DrawOutline(Random* random, int count, int cells, float decay) {
  std::vector<float> outline(count, 0.0f);
  float amplitude = 1 - decay;  // octaves sum to 1
  for (; cells <= count / kFinest; cells *= 2, amplitude *= decay) {
    std::vector<float> points(cells);
    for (float& point : points) point = amplitude * static_cast<float>(random->Uniform(-1, 1));
    const Places places(count, cells);
    for (int i = 0; i < count; ++i) {
      const float left = points[places.cell[i]];
      const float right = points[(places.cell[i] + 1) & (cells - 1)];
      outline[i] += left + (right - left) * places.part[i];
    }
  }
  return outline;
}

}  // namespace lockstep::data
