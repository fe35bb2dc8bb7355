// Text in the columns of a terminal: how wide it is, cut and padded to a width, and foreign text made one plain line.
// UTF-8; pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Columns a terminal needs: wide characters (Chinese, Japanese, Korean, emoji) take two, combining marks none.
size_t TextWidth(std::string_view text);

// At most so many columns; what is cut ends in "...".
std::string CutToWidth(std::string_view text, size_t columns);
// Blanks on the right up to so many columns.
std::string PadToWidth(std::string_view text, size_t columns);

// Foreign text as one line: escape sequences are taken out, line ends, tabs and runs of blanks become one blank, other
// control bytes and invalid UTF-8 are made visible. At most `max_bytes`.
std::string OneLine(std::string_view text, size_t max_bytes = 200);

}  // namespace lockstep
