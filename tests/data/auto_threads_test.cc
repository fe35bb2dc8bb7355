#include "data/auto_threads.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

StageTimes Times(double read, double decode, double transform, double other = 0) {
  return {{read, decode, transform, other}};
}

// Made-up milliseconds of each stage, and how many threads follow.
TEST(AutoThreadsTest, TheChoiceFollowsTheTimesOfTheStages) {
  struct Row {
    const char* what;
    StageTimes seconds;
    double rate, cores;
    int threads;
    bool limited;
  };
  for (const Row& row : std::vector<Row>{
           {"a slow model needs one thread", Times(0.001, 0.002, 0.001), 50, 8, 1, false},
           {"4 ms at 800 a second, and a quarter: 4 threads", Times(0.001, 0.002, 0.001), 800, 8, 4, false},
           {"twice the decoding", Times(0.001, 0.004, 0.001), 800, 8, 6, false},
           {"a fast model gets all cores", Times(0, 0.004, 0.004), 4000, 8, 8, true},
           {"threads that wait for storage come on top of the cores", Times(0.008, 0.004, 0.004), 4000, 8, 16, true},
           {"storage alone: many threads on one core", Times(0.050, 0.0001, 0), 400, 1, 26, false},
           {"never more than the most", Times(1, 0.001, 0.001), 4000, 8, kMostThreads, true},
           {"generated samples compute as well", Times(0, 0, 0, 0.010), 4000, 3, 3, true},
           {"nothing is known to take time", Times(0, 0, 0), 4000, 8, 1, false},
       }) {
    const ThreadPlan plan = PlanThreads(row.seconds, row.rate, row.cores);
    EXPECT_EQ(plan.threads, row.threads) << row.what;
    EXPECT_EQ(plan.limited, row.limited) << row.what;
    const double computing = plan.in_stage[1] + plan.in_stage[2] + plan.in_stage[3];
    EXPECT_LE(computing, row.cores + 1e-9) << row.what;
  }
  const ThreadPlan plan = PlanThreads(Times(0.001, 0.002, 0.001), 800, 8);
  EXPECT_NEAR(plan.in_stage[0], 1, 1e-9);
  EXPECT_NEAR(plan.in_stage[1], 2, 1e-9);
  EXPECT_NEAR(plan.in_stage[2], 1, 1e-9);
}

// 8 samples a step; a step computes for 10 ms, whatever it waits; decoding takes 5 ms.
TEST(AutoThreadsTest, LooksAtATrainingAfterFourEightSixteenSteps) {
  AutoThreads threads(16);
  LoaderStats stats;
  std::vector<int> when, chosen;
  for (int step = 1; step <= 60; ++step) {
    stats.samples_read += 8;
    stats.stages.seconds[1] += 8 * 0.005;
    if (const auto plan = threads.Look(stats, 0.010 + 0.003 * (step % 5), 0.003 * (step % 5))) {
      when.push_back(step);
      chosen.push_back(plan->threads);
    }
  }
  EXPECT_EQ(when, (std::vector<int>{4, 12, 28, 60}));
  EXPECT_EQ(chosen, (std::vector<int>(4, 5)));  // 800 a second x 5 ms x 1.25
}

}  // namespace
}  // namespace lockstep::data
