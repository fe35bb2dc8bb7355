// How long the log reader sleeps between two looks at the pipes while ranks print without pause. Waking for every line
// would cost the ranks (they pay for the wake-up) and us, so pipes are left to fill to about a quarter; the first byte
// after a quiet time is passed on at once. A pipe found more than half full may have been out of room (small writes use
// as little as half of its pages) and its rank waiting: then there is no sleep, and the pauses after it grow from the
// shortest. A plain value without a clock of its own; the reader thread's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::launch {

class LogPace {
 public:
  using microseconds = std::chrono::microseconds;
  static constexpr microseconds kLongest{5000};
  static constexpr microseconds kShortest{100};
  static constexpr microseconds kQuiet{20000};
  static constexpr size_t kFull = 1024;  // the unit of `fill`: a pipe that holds all it can

  // `fill` is what the fullest pipe held, `since` the time since the look before this one. Returns the pause to make.
  microseconds Next(size_t fill, microseconds since) {
    if (since > kQuiet) {
      pause_ = kLongest;
      return microseconds(0);
    }
    if (fill > kFull / 2) return pause_ = microseconds(0);
    const microseconds quarter(since.count() * static_cast<int64_t>(kFull / 4) /
                               static_cast<int64_t>(std::max<size_t>(fill, 1)));
    const microseconds most = std::clamp(pause_ * 2, kShortest, kLongest);
    return pause_ = std::clamp(quarter, kShortest, most);
  }

 private:
  microseconds pause_ = kLongest;
};

}  // namespace lockstep::launch
