#include "logs/log_tail.h"

#include <algorithm>

namespace lockstep::logs {
namespace {

// Length of the valid UTF-8 sequence at the front, 0 if there is none.
size_t SequenceLength(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, past U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t n = SequenceLength(text);
    if (n == 0) {
      out += "\xEF\xBF\xBD";
      n = 1;
    } else if (text[0] == '\0') {
      out += ' ';
    } else {
      out.append(text.substr(0, n));
    }
    text.remove_prefix(n);
  }
  return out;
}

void LogTail::Keep(std::string_view line) {
  lines_.append(line);
  lines_ += '\n';
  if (lines_.size() > 2 * kKeep) {
    size_t cut = lines_.find('\n', lines_.size() - kKeep - 1);
    lines_.erase(0, cut + 1);
  }
}

std::string LogTail::Text(size_t max_lines, size_t max_bytes) const {
  std::string all = lines_;
  for (const LineState& partial : partial_) {
    if (!partial.text().empty()) all.append(partial.text()).append("\n");
  }
  if (all.empty() || max_lines == 0 || max_bytes == 0) return "";
  all = ValidUtf8(all);
  size_t begin = all.size();
  for (size_t lines = 0; lines < max_lines && begin > 0; ++lines) {
    // The newline at begin-1 ends the line being added.
    size_t previous = begin >= 2 ? all.rfind('\n', begin - 2) : std::string::npos;
    size_t start = previous == std::string::npos ? 0 : previous + 1;
    if (all.size() - start > max_bytes) {
      if (lines == 0) {
        // Not even one line fits: its end says most.
        start = all.size() - max_bytes;
        while (start < all.size() && (static_cast<unsigned char>(all[start]) & 0xC0) == 0x80) ++start;
        begin = start;
      }
      break;
    }
    begin = start;
  }
  return all.substr(begin);
}

}  // namespace lockstep::logs
