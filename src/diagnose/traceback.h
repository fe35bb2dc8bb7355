// Reads one Python traceback line by line as it appears in a log: chains ("during handling", "direct cause", "original
// traceback"), exception groups, the forms of rich and loguru, faulthandler's dumps. Lines of others in between are
// tolerated. One value per speaker; no thread of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/findings.h"

namespace lockstep::diagnose {

enum class Link { kFirst, kDuringHandling, kDirectCause, kOriginal };

struct Raised {
  Link link = Link::kFirst;  // how it follows the one before
  std::string type, message;
  uint64_t line = 0;                                    // of the exception's own line
  std::string text;                                     // that line
  std::vector<std::pair<uint64_t, std::string>> after;  // lines of its message
  Frame user, innermost;                                // line 0: none
  bool complete = false;
};

class Traceback {
 public:
  // True for a line that begins one: "Traceback (most recent call last):", rich's box, "Fatal Python error: ...".
  static bool Begins(std::string_view text);

  Traceback(std::string_view first_line, uint64_t line);

  enum class Verdict { kMine, kForeign, kEnded };  // kEnded: the line is not part of it and it is complete
  Verdict Feed(std::string_view text, uint64_t line, bool log_record);

  bool has_exception() const { return !raised_.empty() && raised_.back().complete; }
  const std::vector<Raised>& raised() const { return raised_; }
  uint64_t line() const { return line_; }
  bool fault() const { return fault_; }
  int frames() const { return frames_; }

 private:
  enum class State { kFrames, kAfter, kBetween };

  void AddFrame(Frame frame);
  bool ReadFrame(std::string_view text);
  bool ReadException(std::string_view text, uint64_t line);

  uint64_t line_ = 0;
  State state_ = State::kFrames;
  bool fault_ = false, boxed_ = false, other_thread_ = false, group_ = false;
  size_t base_ = 0;  // indentation of the whole block
  bool based_ = false, expect_source_ = false;
  int foreign_ = 0, after_ = 0, frames_ = 0, lines_ = 0, open_ = 1;
  Link next_ = Link::kFirst;
  std::vector<Raised> raised_;
};

// Whether a frame's file belongs to the interpreter or an installed package rather than to the user.
bool IsLibraryFile(std::string_view file);

// The file and line that the last lines of `text` name: a syntax error of the main script has no traceback.
std::optional<Frame> PlaceBefore(std::string_view text);

}  // namespace lockstep::diagnose
