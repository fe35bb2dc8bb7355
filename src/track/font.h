// A small font for pictures: 5 x 7 points, drawn for this project. Lower case is shown as upper case; what it does not
// have is shown as a blank. Pure function, any thread.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::track {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 7;

// Seven rows from the top, bit 4 is the leftmost point.
std::array<uint8_t, kGlyphHeight> Glyph(char c);

}  // namespace lockstep::track
