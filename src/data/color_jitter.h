// Changes of colour as torchvision's ColorJitter makes them: brightness, contrast, saturation and hue, each by a random
// amount, in a random order. Computed in floats, rounded to bytes at the end. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/random.h"
#include "data/source.h"

namespace lockstep::data {

struct ColorJitter {
  enum Change { kBrightness, kContrast, kSaturation, kHue };
  std::array<Change, 4> order{kBrightness, kContrast, kSaturation, kHue};
  double brightness = 1, contrast = 1, saturation = 1;  // factors
  double hue = 0;                                       // of a turn
};
// Factors within 1 - amount and 1 + amount, the hue within -amount and amount.
ColorJitter DrawJitter(double amount, Random* random);

// Planes [3, pixels], RGB. Contrast is around the mean of these pixels.
void JitterColors(const ColorJitter& jitter, uint8_t* rgb, size_t pixels);

// All frames of the RGB fields of a sample, all in the same way; nothing without `draw.augment` or with amount 0.
void JitterFields(double amount, const Draw& draw, const std::vector<Field>& fields, std::span<std::byte* const> out);

}  // namespace lockstep::data
