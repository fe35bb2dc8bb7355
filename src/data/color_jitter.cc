#include "data/color_jitter.h"

#include <algorithm>
#include <cmath>

#include "data/stages.h"

namespace lockstep::data {
namespace {

using JitterPixel = std::array<float, 3>;

float ClampUnit(float value) { return std::clamp(value, 0.0F, 1.0F); }
float GreyOfPixel(const JitterPixel& p) { return 0.2989F * p[0] + 0.587F * p[1] + 0.114F * p[2]; }

// factor of the pixel, 1 - factor of something else.
JitterPixel BlendPixel(const JitterPixel& p, float other, float factor) {
  JitterPixel out;
  for (size_t c = 0; c < 3; ++c) out[c] = ClampUnit(factor * p[c] + (1 - factor) * other);
  return out;
}

// Through hue, saturation and value.
JitterPixel TurnPixelHue(const JitterPixel& p, float turn) {
  const float most = std::ranges::max(p), least = std::ranges::min(p), range = most - least;
  if (range == 0) return p;
  const float red = (most - p[0]) / range, green = (most - p[1]) / range, blue = (most - p[2]) / range;
  const float sixths = p[0] == most ? blue - green : p[1] == most ? 2 + red - blue : 4 + green - red;
  const float hue = sixths / 6 + 1 + turn;
  const float place = (hue - std::floor(hue)) * 6;
  const int sector = static_cast<int>(place) % 6;
  const float saturation = range / most, rest = place - std::floor(place);
  const float low = ClampUnit(most * (1 - saturation)), falling = ClampUnit(most * (1 - saturation * rest)),
              rising = ClampUnit(most * (1 - saturation * (1 - rest)));
  const JitterPixel sectors[] = {{most, rising, low},  {falling, most, low}, {low, most, rising},
                                 {low, falling, most}, {rising, low, most},  {most, low, falling}};
  return sectors[sector];
}

}  // namespace

ColorJitter DrawJitter(double amount, Random* random) {
  ColorJitter jitter;
  for (size_t i = jitter.order.size() - 1; i > 0; --i) std::swap(jitter.order[i], jitter.order[random->Below(i + 1)]);
  jitter.brightness = random->Uniform(1 - amount, 1 + amount);
  jitter.contrast = random->Uniform(1 - amount, 1 + amount);
  jitter.saturation = random->Uniform(1 - amount, 1 + amount);
  jitter.hue = random->Uniform(-amount, amount);
  return jitter;
}

void JitterColors(const ColorJitter& jitter, uint8_t* rgb, size_t pixels) {
  std::vector<JitterPixel> all(pixels);
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < 3; ++c) all[i][c] = static_cast<float>(rgb[c * pixels + i]) / 255;
  }
  for (const ColorJitter::Change change : jitter.order) {
    switch (change) {
      case ColorJitter::kBrightness:
        for (JitterPixel& p : all) p = BlendPixel(p, 0, static_cast<float>(jitter.brightness));
        break;
      case ColorJitter::kContrast: {
        double sum = 0;
        for (const JitterPixel& p : all) sum += GreyOfPixel(p);
        const auto mean = static_cast<float>(sum / static_cast<double>(pixels));
        for (JitterPixel& p : all) p = BlendPixel(p, mean, static_cast<float>(jitter.contrast));
        break;
      }
      case ColorJitter::kSaturation:
        for (JitterPixel& p : all) p = BlendPixel(p, GreyOfPixel(p), static_cast<float>(jitter.saturation));
        break;
      case ColorJitter::kHue:
        for (JitterPixel& p : all) p = TurnPixelHue(p, static_cast<float>(jitter.hue));
        break;
    }
  }
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < 3; ++c) rgb[c * pixels + i] = static_cast<uint8_t>(std::lround(all[i][c] * 255));
  }
}

void JitterFields(double amount, const Draw& draw, const std::vector<Field>& fields, std::span<std::byte* const> out) {
  if (amount <= 0 || !draw.augment) return;
  const StageMark mark(LoadStage::kTransform);
  Random random(draw.seed, draw.epoch, draw.index, Purpose::kColour);
  const ColorJitter jitter = DrawJitter(amount, &random);
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].name == "spikes") continue;
    const auto pixels = static_cast<size_t>(fields[i].shape[2] * fields[i].shape[3]);
    for (int64_t frame = 0; frame < fields[i].shape[0]; ++frame) {
      JitterColors(jitter, reinterpret_cast<uint8_t*>(out[i]) + frame * 3 * pixels, pixels);
    }
  }
}

}  // namespace lockstep::data
