// The last lines of one rank's log, kept up to date: for a screen that shows what a rank prints. A bar that only
// returns the carriage is one line that changes. Foreign text is made printable. A fixed amount of memory; one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "record/log_tail.h"

namespace lockstep::watch {

class LogLines {
 public:
  // only: of a log of all ranks, the lines of this one.
  LogLines(std::string path, std::optional<int> only, size_t most = 500);

  void Read();
  const std::deque<std::string>& lines() const { return lines_; }
  const std::string& path() const { return tail_.path(); }

 private:
  void Take(std::string_view line, bool complete);

  record::LogTail tail_;
  std::optional<int> only_;
  size_t most_;
  std::string partial_;
  bool redraws_ = false;  // the last line was ended by a carriage return: the next one replaces it
  std::deque<std::string> lines_;
};

}  // namespace lockstep::watch
