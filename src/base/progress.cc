#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "base/units.h"

namespace lockstep {

std::string ProgressText(std::string_view what, std::string_view unit, uint64_t done, uint64_t all, double seconds) {
  std::string text = fmt::format("{}: {} of {}", what, done, Count(static_cast<int64_t>(all), std::string(unit)));
  if (all > 0) text += fmt::format(", {} %", 100 * done / all);
  constexpr double kTooEarly = 2;
  if (done > 0 && done < all && seconds >= kTooEarly) {
    const double left = seconds / static_cast<double>(done) * static_cast<double>(all - done);
    text += ", ETA " + FormatDuration(std::chrono::seconds(std::llround(left)));
  }
  return text;
}

Progress::Progress(std::string what, std::string unit)
    : Progress(std::move(what), std::move(unit), ::isatty(STDERR_FILENO) == 1) {}

Progress::Progress(std::string what, std::string unit, bool terminal)
    : what_(std::move(what)), unit_(std::move(unit)), terminal_(terminal) {}

Progress::~Progress() {
  if (width_ > 0) fmt::print(stderr, "\r{:{}}\r", "", width_);
}

void Progress::Show(uint64_t done, uint64_t all) {
  if (SecondsSince(shown_) < (terminal_ ? 0.1 : 30)) return;
  shown_ = Now();
  const std::string text = ProgressText(what_, unit_, done, all, SecondsSince(start_));
  if (!terminal_) {
    fmt::print(stderr, "{}\n", text);
    return;
  }
  fmt::print(stderr, "\r{:{}}", text, width_);
  std::fflush(stderr);
  width_ = std::max(width_, text.size());
}

}  // namespace lockstep
