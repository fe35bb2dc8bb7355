#include "logs/log_tail.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::logs {

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
