#include "preflight/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/text.h"

namespace lockstep::preflight {
namespace {

constexpr Millis kEvery{5000};

}  // namespace

Progress::Progress() : terminal_(UseColour(STDERR_FILENO)) {}

launch::LauncherGroupEvents Progress::Events() {
  return {[this](const std::string& text) {
            Clear();
            fmt::print(stderr, "lockstep: {}\n", Printable(text, 1000));
          },
          [this](const std::string& text) {
            if (text.empty()) {
              Clear();
            } else {
              Show(Printable(text, 300));
            }
          }};
}

void Progress::Show(const std::string& text) {
  if (terminal_) {
    fmt::print(stderr, "\r\x1b[Klockstep: {}", text);
    std::fflush(stderr);
    shown_ = text;
  } else if (last_ == TimePoint{} || Now() - last_ >= kEvery) {
    last_ = Now();
    fmt::print(stderr, "lockstep: {}\n", text);
  }
}

void Progress::Clear() {
  if (!terminal_ || shown_.empty()) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_.clear();
}

}  // namespace lockstep::preflight
