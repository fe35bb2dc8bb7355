#include "base/columns.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/text.h"

namespace lockstep {
namespace {

struct Range {
  uint32_t first, last;
};

// Of Unicode's East Asian Width (W, F) and of combining and invisible characters, the blocks that names and messages
// hold; glibc's wcwidth knows them in a UTF-8 locale only, which a job seldom has.
constexpr Range kWide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},   {0xac00, 0xd7a3},
                           {0xf900, 0xfaff},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
                           {0x1f300, 0x1f64f}, {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
constexpr Range kNothing[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x064b, 0x065f},
                              {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};

template <size_t N>
bool Among(const Range (&ranges)[N], uint32_t point) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return point >= range.first && point <= range.last; });
}

// The next character of valid UTF-8: its bytes and columns. A byte that is none counts as one of each.
struct Character {
  size_t bytes = 1, columns = 1;
};

Character Next(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (bytes == 1 || bytes > text.size()) return {};
  uint32_t point = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return {};
    point = point << 6 | (byte & 0x3fu);
  }
  return {bytes, Among(kNothing, point) ? 0u : Among(kWide, point) ? 2u : 1u};
}

// Bytes of the escape sequence at the front: ESC [ ... letter, ESC ] ... BEL or ESC \, ESC and one byte.
size_t EscapeLength(std::string_view text) {
  if (text.size() < 2) return 1;
  if (text[1] == '[') {
    size_t end = 2;
    while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
    return std::min(end + 1, text.size());
  }
  if (text[1] == ']') {
    const size_t end = text.find_first_of("\a\x1b", 2);
    if (end == std::string_view::npos) return text.size();
    return std::min(text[end] == '\a' ? end + 1 : end + 2, text.size());
  }
  return 2;
}

}  // namespace

size_t TextWidth(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character next = Next(text);
    columns += next.columns;
    text.remove_prefix(next.bytes);
  }
  return columns;
}

std::string CutToWidth(std::string_view text, size_t columns) {
  if (TextWidth(text) <= columns) return std::string(text);
  const std::string_view dots = std::string_view("...").substr(0, columns);
  size_t taken = 0, used = 0;
  while (taken < text.size()) {
    const Character next = Next(text.substr(taken));
    if (used + next.columns > columns - dots.size()) break;
    used += next.columns;
    taken += next.bytes;
  }
  return std::string(text.substr(0, taken)).append(dots);
}

std::string PadToWidth(std::string_view text, size_t columns) {
  const size_t width = TextWidth(text);
  return std::string(text).append(width < columns ? columns - width : 0, ' ');
}

std::string OneLine(std::string_view text, size_t max_bytes) {
  std::string flat;
  while (!text.empty() && flat.size() <= max_bytes) {
    const char c = text[0];
    if (c == '\x1b') {
      text.remove_prefix(EscapeLength(text));
      continue;
    }
    const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\f' || c == '\v';
    if (!blank) flat += c;
    if (blank && !flat.empty() && flat.back() != ' ') flat += ' ';
    text.remove_prefix(1);
  }
  return Printable(Trim(flat), max_bytes);
}

}  // namespace lockstep
