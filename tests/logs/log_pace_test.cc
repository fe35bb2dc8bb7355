#include "logs/log_pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace lockstep::logs {
namespace {

using std::chrono::microseconds;
constexpr microseconds kNone{0};

// A rank that prints `per_ms` bytes each millisecond into a pipe of 1 MiB, and a reader that needs no time. Returns how
// full the pipe was found over the last looks, in units of LogPace::kFull.
struct Found {
  size_t least = LogPace::kFull, most = 0;
  microseconds pause{0};
};
Found Steady(LogPace& pace, int64_t per_ms) {
  Found found;
  microseconds since{50};
  for (int look = 0; look < 1000; ++look) {
    const int64_t bytes = std::min<int64_t>(since.count() * per_ms / 1000, 1 << 20);
    const size_t fill = static_cast<size_t>(bytes) * LogPace::kFull >> 20;
    found.pause = pace.Next({.stored = fill}, since);
    since = std::max(found.pause, microseconds(50));
    if (look < 100) continue;
    found.least = std::min(found.least, fill);
    found.most = std::max(found.most, fill);
  }
  return found;
}

TEST(LogPace, TheFirstByteAfterAQuietTimeIsPassedOnAtOnce) {
  LogPace pace;
  EXPECT_EQ(pace.Next({.stored = 1}, LogPace::kQuiet + microseconds(1)), kNone);
  EXPECT_EQ(pace.Next({.stored = 1}, microseconds(100)), LogPace::kLongest) << "then lines are gathered";
}

TEST(LogPace, ARankThatMayBeWaitingIsReadWithoutAPause) {
  LogPace pace;
  EXPECT_EQ(pace.Next({.stored = 1}, microseconds(100)), LogPace::kLongest);
  EXPECT_EQ(pace.Next({.stored = LogPace::kFull / 2 + 1}, LogPace::kLongest), kNone);
  EXPECT_EQ(pace.Next({.stored = LogPace::kFull}, microseconds(200)), kNone) << "also when reading it took a while";
  EXPECT_EQ(pace.Next({.stored = LogPace::kFull}, microseconds(2000)), kNone);
}

TEST(LogPace, AfterAFloodPausesGrowFromTheShortest) {
  LogPace pace;
  pace.Next({.stored = LogPace::kFull}, microseconds(200));
  // The rank has only just been woken, so the pipe is nearly empty: no reason to sleep for long.
  EXPECT_EQ(pace.Next({.stored = 8}, microseconds(200)), LogPace::kShortest);
  EXPECT_EQ(pace.Next({.stored = 8}, microseconds(200)), 2 * LogPace::kShortest);
  EXPECT_EQ(pace.Next({.stored = 8}, microseconds(200)), 4 * LogPace::kShortest);
  for (int i = 0; i < 10; ++i) pace.Next({.stored = 0}, microseconds(200));
  EXPECT_EQ(pace.Next({.stored = 0}, microseconds(200)), LogPace::kLongest);
}

TEST(LogPace, ASteadyRankFindsItsPipeAboutAQuarterFull) {
  LogPace pace;
  for (int64_t per_ms : {100'000, 300'000, 1'000'000}) {
    const Found found = Steady(pace, per_ms);
    EXPECT_GE(found.least, LogPace::kFull / 5) << per_ms;
    EXPECT_LE(found.most, LogPace::kFull / 3) << per_ms;
  }
}

TEST(LogPace, ARankThatPrintsLittleIsLookedAtSeldom) {
  LogPace pace;
  EXPECT_EQ(Steady(pace, 1000).pause, LogPace::kLongest);
}

TEST(LogPace, AFloodOnTheConsoleAlwaysLeavesTheConsoleTime) {
  LogPace pace;
  EXPECT_EQ(pace.Next({.shown = LogPace::kFull}, microseconds(2000)), microseconds(1000));
  EXPECT_EQ(pace.Next({.shown = LogPace::kFull}, microseconds(10)), LogPace::kShown);
  EXPECT_EQ(pace.Next({.shown = 1}, microseconds(2000)), LogPace::kLongest);
}

TEST(LogPace, ARankInAFloodDoesNotWaitForAnotherThatIsShown) {
  LogPace pace;
  EXPECT_EQ(pace.Next({.stored = LogPace::kFull, .shown = 1}, microseconds(2000)), kNone);
  EXPECT_EQ(pace.Next({.stored = 8, .shown = 1}, microseconds(2000)), LogPace::kShortest);
}

}  // namespace
}  // namespace lockstep::logs
