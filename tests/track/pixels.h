// What tests ask of a drawn picture. Pure functions.
#pragma once

#include <array>
#include <cstdint>

#include "track/canvas.h"

namespace lockstep::track {

using Rgb = std::array<uint8_t, 3>;

inline Rgb At(const Picture& picture, int x, int y) {
  const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(picture.width) + static_cast<size_t>(x)) * 3;
  return {picture.rgb[at], picture.rgb[at + 1], picture.rgb[at + 2]};
}

// Pixels of the box for which `is` holds.
template <typename Is>
int Count(const Picture& picture, const Box& box, Is is) {
  int n = 0;
  for (int y = static_cast<int>(box.y); y < static_cast<int>(box.bottom()) && y < picture.height; ++y) {
    for (int x = static_cast<int>(box.x); x < static_cast<int>(box.right()) && x < picture.width; ++x) {
      n += is(At(picture, x, y));
    }
  }
  return n;
}

inline bool IsDark(Rgb c) { return c[0] < 110 && c[1] < 120 && c[2] < 130; }
inline bool IsBlue(Rgb c) { return c[0] < 60 && c[2] > 140; }
inline bool IsOrange(Rgb c) { return c[0] > 180 && c[1] < 140 && c[2] < 60; }

inline int DarkPixels(const Picture& picture, const Box& box) { return Count(picture, box, IsDark); }
inline Box Whole(const Picture& picture) {
  return {0, 0, static_cast<double>(picture.width), static_cast<double>(picture.height)};
}

}  // namespace lockstep::track
