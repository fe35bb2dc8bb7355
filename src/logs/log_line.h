// The visible state of an unfinished line: what a terminal would show of it after the carriage returns seen so far.
// Text after a carriage return replaces the text before it; a trailing one replaces nothing yet, so "50%\r" is seen as
// "50%". A plain value, shared by the console path and the tail.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

namespace lockstep::logs {

class LineState {
 public:
  // `piece` has no newline. Calls replaced(state) for each bar state that the piece overwrites. Text past `cap` is left
  // out; the caller that cares cuts before.
  template <typename Replaced>
  void Append(std::string_view piece, size_t cap, Replaced&& replaced) {
    while (!piece.empty()) {
      const char* cr = static_cast<const char*>(std::memchr(piece.data(), '\r', piece.size()));
      std::string_view text = cr != nullptr ? piece.substr(0, static_cast<size_t>(cr - piece.data())) : piece;
      if (!text.empty()) {
        if (overwrite_) {
          if (!text_.empty()) {
            bar_ = true;
            replaced(std::string_view(text_));
          }
          text_.clear();
          overwrite_ = false;
        }
        if (text_.size() < cap) text_.append(text.substr(0, cap - text_.size()));
      }
      if (cr == nullptr) return;
      overwrite_ = true;
      piece.remove_prefix(text.size() + 1);
    }
  }

  void Clear() {
    text_.clear();
    overwrite_ = false;
    bar_ = false;
  }

  const std::string& text() const { return text_; }
  bool started() const { return !text_.empty() || overwrite_; }
  bool bar() const { return bar_ || (overwrite_ && !text_.empty()); }

 private:
  std::string text_;
  bool overwrite_ = false;
  bool bar_ = false;
};

}  // namespace lockstep::logs
