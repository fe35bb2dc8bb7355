#include "data/texture.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace lockstep::data {
namespace {

constexpr float kTurn = 2 * std::numbers::pi_v<float>;

Rgb DrawTint(Random* random) {
  return {static_cast<float>(random->Uniform(0.03, 0.97)), static_cast<float>(random->Uniform(0.03, 0.97)),
          static_cast<float>(random->Uniform(0.03, 0.97))};
}

float Smooth(float t) { return t * t * (3 - 2 * t); }

// How many features of about `grain` texels fit a side; a whole number, so that the texture wraps.
int Repeats(Random* random, int side, float grain) {
  const double wanted = static_cast<double>(side) / (grain * random->Uniform(0.6, 1.4));
  return std::clamp(static_cast<int>(std::lround(wanted)), 1, side / 4);
}

}  // namespace

Texture::Texture(Random* random, int side, float grain)
    : shift_(std::countr_zero(static_cast<unsigned>(side))), mask_(side - 1) {
  const size_t texels = static_cast<size_t>(side) * side;
  level_.assign(texels, 0.0f);
  const uint64_t family = random->Below(5);
  switch (family) {
    case 0:
      Noise(random, grain);
      break;
    case 1:
      Stripes(random, grain, /*checker=*/false);
      break;
    case 2:
      Stripes(random, grain, /*checker=*/true);
      break;
    case 3:
      Waves(random, grain);
      break;
    default:
      Glyphs(random, grain);
      break;
  }
  // Two or three colours over the picture, shaded by a slow and a fine noise: no surface is a flat cartoon.
  const Rgb low = DrawTint(random);
  const Rgb middle = family == 0 || family == 3 ? DrawTint(random) : Blend(low, DrawTint(random), 0.5f);
  const Rgb high = DrawTint(random);
  std::vector<float> shade(texels, 0.0f);
  AddLattice(random, std::max(1, side / 64), static_cast<float>(random->Uniform(0.05, 0.25)), &shade);
  AddLattice(random, side / 4, static_cast<float>(random->Uniform(0.0, 0.10)), &shade);
  texels_.resize(texels);
  for (size_t i = 0; i < texels; ++i) {
    const float t = std::clamp(level_[i], 0.0f, 1.0f);
    const Rgb base = t < 0.5f ? Blend(low, middle, 2 * t) : Blend(middle, high, 2 * t - 1);
    const float light = 1 + shade[i];
    texels_[i] = {base.r * light, base.g * light, base.b * light};
  }
  level_ = {};
}

// Smooth noise with values in [-amplitude, amplitude] at cells x cells points.
void Texture::AddLattice(Random* random, int cells, float amplitude, std::vector<float>* to) const {
  const int side = mask_ + 1;
  std::vector<float> points(static_cast<size_t>(cells) * cells);
  for (float& point : points) point = amplitude * static_cast<float>(random->Uniform(-1, 1));
  std::vector<int> cell(side);
  std::vector<float> part(side);
  for (int x = 0; x < side; ++x) {
    const float at = static_cast<float>(x) * static_cast<float>(cells) / static_cast<float>(side);
    cell[x] = static_cast<int>(at);
    part[x] = Smooth(at - static_cast<float>(cell[x]));
  }
  std::vector<float> line(cells + 1);
  for (int y = 0; y < side; ++y) {
    const float* above = points.data() + static_cast<size_t>(cell[y]) * cells;
    const float* below = points.data() + static_cast<size_t>((cell[y] + 1) % cells) * cells;
    for (int c = 0; c < cells; ++c) line[c] = above[c] + (below[c] - above[c]) * part[y];
    line[cells] = line[0];
    float* out = to->data() + (static_cast<size_t>(y) << shift_);
    for (int x = 0; x < side; ++x) out[x] += line[cell[x]] + (line[cell[x] + 1] - line[cell[x]]) * part[x];
  }
}

// Octaves of noise, each twice as fine and a bit more than half as strong.
void Texture::Noise(Random* random, float grain) {
  std::ranges::fill(level_, 0.5f);
  int cells = Repeats(random, side(), grain);
  float amplitude = 0.45f;
  const auto decay = static_cast<float>(random->Uniform(0.45, 0.7));
  for (int octave = 0; octave < 4 && cells <= side() / 2; ++octave, cells *= 2, amplitude *= decay) {
    AddLattice(random, cells, amplitude, &level_);
  }
}

// Bands of a wave cut to an edge about one texel wide. The wave repeats a whole number of times along both axes.
void Texture::Stripes(Random* random, float grain, bool checker) {
  const int repeats = Repeats(random, side(), grain);
  const double angle = random->Uniform(0, std::numbers::pi);
  const auto along_x = static_cast<float>(std::lround(repeats * std::cos(angle)));
  auto along_y = static_cast<float>(std::lround(repeats * std::sin(angle)));
  if (along_x == 0 && along_y == 0) along_y = 1;
  const float frequency = std::hypot(along_x, along_y) * kTurn / static_cast<float>(side());
  const float edge = 0.6f / frequency;
  // sin(a + b) from tables of both axes: the whole picture without a call of sin per texel.
  std::vector<float> sin_x(side());
  std::vector<float> cos_x(side());
  std::vector<float> sin_y(side());
  std::vector<float> cos_y(side());
  const float turn = kTurn / static_cast<float>(side());
  for (int i = 0; i < side(); ++i) {
    sin_x[i] = std::sin(turn * along_x * static_cast<float>(i));
    cos_x[i] = std::cos(turn * along_x * static_cast<float>(i));
    sin_y[i] = std::sin(turn * along_y * static_cast<float>(i));
    cos_y[i] = std::cos(turn * along_y * static_cast<float>(i));
  }
  const auto band = [edge](float wave) { return std::clamp(wave * edge, -0.5f, 0.5f); };
  for (int y = 0; y < side(); ++y) {
    float* out = level_.data() + (static_cast<size_t>(y) << shift_);
    for (int x = 0; x < side(); ++x) {
      const float first = band(sin_x[x] * cos_y[y] + cos_x[x] * sin_y[y]);
      // The second wave of a checker runs across the first: (x, y) -> (y, -x).
      out[x] = 0.5f + (checker ? 2 * first * band(sin_x[y] * cos_y[x] - cos_x[y] * sin_y[x]) : first);
    }
  }
}

// A few slow waves: soft gradients.
void Texture::Waves(Random* random, float grain) {
  std::ranges::fill(level_, 0.5f);
  const int repeats = std::max(1, Repeats(random, side(), 2 * grain));
  std::vector<float> wave_x(side());
  std::vector<float> wave_y(side());
  for (int wave = 0; wave < 3; ++wave) {
    const auto along_x = static_cast<float>(random->Between(0, repeats));
    const auto along_y = static_cast<float>(random->Between(1, repeats + 1));
    const auto phase_x = static_cast<float>(random->Uniform());
    const auto phase_y = static_cast<float>(random->Uniform());
    for (int i = 0; i < side(); ++i) {
      const float at = static_cast<float>(i) / static_cast<float>(side());
      wave_x[i] = std::cos(kTurn * (along_x * at + phase_x));
      wave_y[i] = 0.28f * std::cos(kTurn * (along_y * at + phase_y));
    }
    for (int y = 0; y < side(); ++y) {
      float* out = level_.data() + (static_cast<size_t>(y) << shift_);
      for (int x = 0; x < side(); ++x) out[x] += wave_x[x] * wave_y[y];
    }
  }
}

// Lines of little figures, each 3x5 blocks set at random: as sharp and dense as text, with gaps between words.
void Texture::Glyphs(Random* random, float grain) {
  const int glyph = std::bit_ceil(static_cast<unsigned>(std::clamp(grain * 0.7f, 4.0f, side() / 2.0f)));
  const int cells = side() / glyph;
  std::vector<unsigned> figures(static_cast<size_t>(cells) * cells);
  for (unsigned& figure : figures) {
    figure = random->Chance(0.2) ? 0 : static_cast<unsigned>(random->Next() | random->Next()) & 0x7fff;
  }
  const float block = static_cast<float>(glyph) / 6;
  for (int y = 0; y < side(); ++y) {
    const float v = (static_cast<float>(y % glyph) + 0.5f) / block - 0.5f;
    float* out = level_.data() + (static_cast<size_t>(y) << shift_);
    for (int x = 0; x < side(); ++x) {
      const float u = (static_cast<float>(x % glyph) + 0.5f) / block * 0.7f - 0.5f;
      const unsigned figure = figures[static_cast<size_t>(y / glyph) * cells + x / glyph];
      if (u < 0 || v < 0 || u >= 3 || v >= 5) continue;
      const unsigned bit = static_cast<unsigned>(v) * 3 + static_cast<unsigned>(u);
      out[x] = static_cast<float>(figure >> bit & 1u);
    }
  }
  // One pass of a small blur: edges of about one texel, as everywhere else.
  std::vector<float> sharp = level_;
  for (int y = 0; y < side(); ++y) {
    const float* line = sharp.data() + (static_cast<size_t>(y) << shift_);
    const float* above = sharp.data() + (static_cast<size_t>((y - 1) & mask_) << shift_);
    const float* below = sharp.data() + (static_cast<size_t>((y + 1) & mask_) << shift_);
    float* out = level_.data() + (static_cast<size_t>(y) << shift_);
    for (int x = 0; x < side(); ++x) {
      out[x] = 0.5f * line[x] + 0.125f * (line[(x - 1) & mask_] + line[(x + 1) & mask_] + above[x] + below[x]);
    }
  }
}

}  // namespace lockstep::data
