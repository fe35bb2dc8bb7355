// How far a long command is, on stderr: one line that is written over on a terminal, a line every 30 s elsewhere. One
// thread at a time.
//
//   Progress progress("reading", "sample");
//   for (...) progress.Show(done, all);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lockstep {

// "reading: 250 of 1000 samples, 25 %, ETA 30.0s" after so many seconds; no ETA in the first two.
std::string ProgressText(std::string_view what, std::string_view unit, uint64_t done, uint64_t all, double seconds);

class Progress {
 public:
  // `unit` in the singular.
  Progress(std::string what, std::string unit);
  Progress(std::string what, std::string unit, bool terminal);
  ~Progress();  // takes the line of a terminal away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Show(uint64_t done, uint64_t all);

 private:
  std::string what_, unit_;
  bool terminal_;
  size_t width_ = 0;  // of what stands on the terminal
  TimePoint start_ = Now(), shown_ = start_;
};

}  // namespace lockstep
