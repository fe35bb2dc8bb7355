#include "track/colour_map.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::track {
namespace {

// Every eighth of its 256 entries and the last; between them a straight line is off by less than two levels.
constexpr uint32_t kMagma[] = {0x000004, 0x030312, 0x0a0822, 0x130d34, 0x1d1147, 0x29115a, 0x36106b, 0x440f76, 0x51127c,
                               0x5d177f, 0x6a1c81, 0x762181, 0x832681, 0x902a81, 0x9c2e7f, 0xaa337d, 0xb73779, 0xc43c75,
                               0xd0416f, 0xdc4869, 0xe75263, 0xef5d5e, 0xf56b5c, 0xf9795d, 0xfc8961, 0xfd9869, 0xfea772,
                               0xfeb67c, 0xfec488, 0xfed395, 0xfde2a3, 0xfcf0b2, 0xfcfdbf};
constexpr uint8_t kGrey = 160;

}  // namespace

Colour MagmaColour(double part) {
  constexpr size_t kLast = std::size(kMagma) - 1;
  // The last entry follows the one before at seven eighths of the usual distance.
  const double entry = std::clamp(part, 0.0, 1.0) * 255 / 8;
  const auto below = std::min(static_cast<size_t>(entry), kLast - 1);
  const double width = below + 1 == kLast ? 7.0 / 8 : 1;
  const double mix = std::min((entry - static_cast<double>(below)) / width, 1.0);
  const Colour low = Colour::Hex(kMagma[below]), high = Colour::Hex(kMagma[below + 1]);
  const auto between = [mix](double a, double b) { return a + (b - a) * mix; };
  return {between(low.red, high.red), between(low.green, high.green), between(low.blue, high.blue)};
}

Picture Coloured(const NumberMap& map, double scale) {
  std::array<std::array<uint8_t, 3>, 256> table{};
  for (size_t i = 0; i < table.size(); ++i) {
    const Colour colour = MagmaColour(static_cast<double>(i) / 255);
    const auto level = [](double value) { return static_cast<uint8_t>(std::lround(value * 255)); };
    table[i] = {level(colour.red), level(colour.green), level(colour.blue)};
  }
  Picture picture{map.width, map.height, {}};
  picture.rgb.reserve(map.values.size() * 3);
  for (const float value : map.values) {
    const bool whole = std::isfinite(value);
    const double part = whole && scale > 0 ? std::clamp(value / scale, 0.0, 1.0) : 0;
    const auto& colour = table[static_cast<size_t>(std::lround(part * 255))];
    for (const uint8_t channel : colour) picture.rgb.push_back(whole ? channel : kGrey);
  }
  return picture;
}

}  // namespace lockstep::track
