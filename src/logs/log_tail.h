// The last words of one rank: a bounded memory of its latest lines from both streams, for the failure report. A flood
// costs at most one copy of kKeep bytes per batch. Used under LogPump's lock.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "logs/log_line.h"

namespace lockstep::logs {

class LogTail {
 public:
  static constexpr size_t kKeep = 16384;
  static constexpr size_t kPartial = 4096;

  // `data` is the next piece of stream 0 (out) or 1 (err). Calls on_line(text) for at most `lines` of its finished
  // lines and overwritten bar states.
  template <typename OnLine>
  void Feed(int stream, std::string_view data, int lines, OnLine&& on_line) {
    LineState& partial = partial_[stream];
    if (data.size() > kKeep) {
      // Everything kept so far is too old to be among the last words, and so is the line cut in two.
      data.remove_prefix(data.size() - kKeep);
      if (const size_t eol = data.find('\n'); eol != std::string_view::npos) data.remove_prefix(eol + 1);
      lines_.clear();
      partial.Clear();
    }
    auto replaced = [&](std::string_view state) {
      if (lines-- > 0) on_line(state);
    };
    if (!partial.started() && std::memchr(data.data(), '\r', data.size()) == nullptr) {
      // The common case and the flood: whole lines are kept in one copy, and only as many are looked at as asked for.
      const char* last = static_cast<const char*>(::memrchr(data.data(), '\n', data.size()));
      if (last != nullptr) {
        std::string_view whole = data.substr(0, static_cast<size_t>(last - data.data()));
        data.remove_prefix(whole.size() + 1);
        Keep(whole);
        while (lines > 0 && !whole.empty()) {
          const size_t size = std::min(whole.find('\n'), whole.size());
          replaced(whole.substr(0, size));
          whole.remove_prefix(std::min(size + 1, whole.size()));
        }
      }
    }
    while (!data.empty()) {
      const char* eol = static_cast<const char*>(std::memchr(data.data(), '\n', data.size()));
      if (eol == nullptr) {
        partial.Append(data, kPartial, replaced);
        break;
      }
      std::string_view line = data.substr(0, static_cast<size_t>(eol - data.data()));
      data.remove_prefix(line.size() + 1);
      if (partial.started() || std::memchr(line.data(), '\r', line.size()) != nullptr) {
        partial.Append(line, kPartial, replaced);
        replaced(partial.text());
        Keep(partial.text());
        partial.Clear();
      } else {
        replaced(line);
        Keep(line.substr(0, kPartial));
      }
    }
  }

  // The last lines, each newline-terminated, as valid UTF-8; unfinished lines come last.
  std::string Text(size_t max_lines, size_t max_bytes) const;

  // The stream's unfinished line.
  const LineState& Partial(int stream) const { return partial_[stream]; }

 private:
  void Keep(std::string_view line);

  std::string lines_;
  LineState partial_[2];
};

}  // namespace lockstep::logs
