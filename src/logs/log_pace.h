// How long the log reader sleeps between two looks at the pipes while ranks print without pause. Waking for every line
// would cost the ranks (they pay for the wake-up) and us, so pipes are left to fill in part; the first byte after a
// quiet time is passed on at once. A pipe found more than half full may have been out of room (small writes use as
// little as half of its pages) and its rank waiting: if only a file takes its bytes there is no sleep, and the pauses
// after it grow from the shortest. A flood that is shown leaves the console a pause each time, because
// what the console cannot take is skipped. A plain value without a clock of its own; the reader thread's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::logs {

class LogPace {
 public:
  using microseconds = std::chrono::microseconds;
  static constexpr microseconds kLongest{5000};
  static constexpr microseconds kShortest{100};
  static constexpr microseconds kShown{300};  // the shortest while the console has its part to do
  static constexpr microseconds kQuiet{20000};
  static constexpr size_t kFull = 1024;  // the unit of Fill: a pipe that holds all it can

  // What the fullest pipe held, of the streams that go to files only and of those shown on the console.
  struct Fill {
    size_t stored = 0, shown = 0;
  };

  // `since` is the time since the look before this one. Returns the pause to make.
  microseconds Next(Fill fill, microseconds since) {
    if (since > kQuiet) {
      pause_ = kLongest;
      return microseconds(0);
    }
    if (fill.stored > kFull / 2) return pause_ = microseconds(0);
    const microseconds most = std::clamp(pause_ * 2, kShortest, kLongest);
    const microseconds stored = std::clamp(Until(kFull / 4, fill.stored, since), kShortest, most);
    const microseconds shown = std::clamp(Until(kFull / 2, fill.shown, since), kShown, kLongest);
    if (fill.shown == 0) return pause_ = stored;
    return pause_ = fill.stored == 0 ? shown : std::min(stored, shown);
  }

 private:
  // The time in which a pipe that took `fill` in `since` takes `wanted`.
  static microseconds Until(size_t wanted, size_t fill, microseconds since) {
    return microseconds(since.count() * static_cast<int64_t>(wanted) / static_cast<int64_t>(std::max<size_t>(fill, 1)));
  }

  microseconds pause_ = kLongest;
};

}  // namespace lockstep::logs
