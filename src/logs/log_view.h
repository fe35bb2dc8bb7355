// How one stream of one rank looks on the console: every line behind its prefix "node:rank| ", a line of more than 64
// KiB in pieces whose later ones begin "node:rank+ ", carriage-return bars in place on a terminal and thinned to a line
// now and then elsewhere. Used by the reader thread alone.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "logs/console.h"
#include "logs/log_line.h"

namespace lockstep::logs {

class LogView {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kLongest = 64 << 10;

  struct Look {
    int node = 0, rank = 0;
    bool err = false;
    bool terminal = false;
    bool colour = false;
    std::chrono::milliseconds bar_interval{5000};
  };

  // `scratch` is empty between calls and may be shared by all views of one thread.
  LogView(Console* console, std::string* scratch, int source, Look look);

  void Feed(std::string_view data, TimePoint now);
  // The stream is at its end: shows an unfinished line.
  void End(TimePoint now);

 private:
  void Emit(std::string_view line);
  void FinishLine();
  void AppendSlow(std::string_view piece, TimePoint now);
  void Flush();

  Console* const console_;
  std::string& batch_;
  const int source_;
  const Look look_;
  std::string prefix_, more_;
  LineState line_;
  bool continued_ = false;  // a piece of the current line is out already
  bool bar_shown_ = false;
  TimePoint bar_at_{};
  uint64_t count_ = 0;
};

}  // namespace lockstep::logs
