#include "watch/pace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lockstep::watch {
namespace {

TEST(Pace, IsTheMeanOverTheLatestSteps) {
  Pace pace;
  EXPECT_FALSE(pace.seconds_per_step());
  pace.Add(10, 100);
  EXPECT_FALSE(pace.seconds_per_step());
  pace.Add(30, 102);
  EXPECT_DOUBLE_EQ(*pace.seconds_per_step(), 0.1);
  for (int i = 1; i <= 100; ++i) pace.Add(static_cast<uint64_t>(30 + i), 102 + i);
  EXPECT_DOUBLE_EQ(*pace.seconds_per_step(), 1) << "what was long ago no longer counts";
}

TEST(Pace, StepsOfOneTimeAreOne) {
  Pace pace;
  for (uint64_t step = 0; step <= 40; ++step) {
    const uint64_t second = 100 + step / 4;
    pace.Add(step, static_cast<double>(second));
  }
  EXPECT_DOUBLE_EQ(*pace.seconds_per_step(), 0.25);
}

TEST(Pace, OneGapThatIsNoStepIsLeftOut) {
  const struct {
    std::vector<uint64_t> before;  // steps of 1 s before which a further hour passed
    double seconds;
  } cases[] = {{{}, 1}, {{20}, 1}, {{12, 20}, (39 + 2 * 3600) / 39.0}};
  for (const auto& test : cases) {
    Pace pace;
    double t = 100;
    for (uint64_t step = 0; step < 40; ++step, t += 1) {
      if (std::find(test.before.begin(), test.before.end(), step) != test.before.end()) t += 3600;
      pace.Add(step, t);
    }
    EXPECT_NEAR(*pace.seconds_per_step(), test.seconds, test.seconds > 1 ? 60 : 1e-9);
  }
}

TEST(Pace, ARestartAndAClockThatGoesBackBeginAnew) {
  for (const auto& [step, t] : {std::pair<uint64_t, double>{5, 300}, {40, 50}}) {
    Pace pace;
    pace.Add(10, 100);
    pace.Add(30, 102);
    pace.Add(step, t);
    EXPECT_FALSE(pace.seconds_per_step());
    pace.Add(step + 1, t + 3);
    EXPECT_DOUBLE_EQ(*pace.seconds_per_step(), 3);
  }
}

}  // namespace
}  // namespace lockstep::watch
