// Schedules and the loss scale against PyTorch's own trajectories (tests/golden/make.py).
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/scaler.h"
#include "engine/schedule.h"
#include "golden/golden.h"

namespace lockstep::engine {
namespace {

Schedule ScheduleOf(const nlohmann::json& row) {
  static const std::map<std::string, Schedule::Kind> kinds = {
      {"constant", Schedule::Kind::kConstant},   {"linear", Schedule::Kind::kLinear},
      {"cosine", Schedule::Kind::kCosine},       {"cosine_restarts", Schedule::Kind::kCosineRestarts},
      {"multistep", Schedule::Kind::kMultistep}, {"polynomial", Schedule::Kind::kPolynomial}};
  Schedule schedule;
  schedule.kind = kinds.at(row["kind"]);
  schedule.warmup = row["warmup"];
  schedule.steps = row["steps"];
  schedule.floor = row["floor"];
  schedule.cycles = row.value("cycles", 1);
  schedule.power = row.value("power", 1.0);
  schedule.gamma = row.value("gamma", 0.1);
  schedule.milestones = row.value("milestones", std::vector<uint64_t>{});
  return schedule;
}

TEST(GoldenSchedule, EveryKindFollowsPyTorchStepByStepAndBeyondTheEnd) {
  std::set<std::string> kinds;
  const nlohmann::json doc = golden::Json("schedules");
  for (const auto& row : doc["cases"]) {
    Schedule schedule = ScheduleOf(row);
    kinds.insert(row["kind"]);
    for (size_t step = 0; step < row["factors"].size(); ++step) {
      EXPECT_NEAR(Factor(schedule, step), row["factors"][step], 1e-12) << row["kind"] << " at step " << step;
    }
  }
  EXPECT_EQ(kinds.size(), 6U);
}

TEST(GoldenSchedule, AScheduleOneStepLateIsNoticed) {
  const nlohmann::json doc = golden::Json("schedules");
  for (const auto& row : doc["cases"]) {
    if (row["kind"] == "constant" && row["warmup"] == 0) continue;
    double largest = 0;
    for (size_t step = 0; step < row["factors"].size(); ++step) {
      largest = std::max(largest, std::abs(Factor(ScheduleOf(row), step + 1) - row["factors"][step].get<double>()));
    }
    EXPECT_GT(largest, 1e-3) << row["kind"];
  }
}

// deepspeed.runtime.lr_schedules.WarmupLR (0.19.8) with warmup_num_steps 8 and warmup_type log, iterations 0 to 9.
TEST(GoldenSchedule, ALogarithmicWarmupIsDeepSpeeds) {
  const std::vector<double> expected = {0.0,
                                        0.33333333333333337,
                                        0.5283208335737188,
                                        0.6666666666666667,
                                        0.7739760316291208,
                                        0.8616541669070521,
                                        0.9357849740192014,
                                        1.0,
                                        1.0,
                                        1.0};
  Schedule schedule;
  schedule.kind = Schedule::Kind::kConstant;
  schedule.warmup = 8;
  schedule.warmup_shape = Schedule::WarmupShape::kLog;
  for (size_t step = 0; step < expected.size(); ++step) EXPECT_NEAR(Factor(schedule, step), expected[step], 1e-12);
}

TEST(GoldenScaler, ScaleAndGoodStepsFollowGradScaler) {
  const nlohmann::json doc = golden::Json("scaler");
  ASSERT_EQ(doc["cases"].size(), 3U);
  for (const auto& row : doc["cases"]) {
    ScalerConfig config;
    config.initial = row["initial"];
    config.growth = row["growth"];
    config.backoff = row["backoff"];
    config.interval = row["interval"];
    LossScaler scaler(config);
    ASSERT_GT(row["finite"].size(), 3U);
    for (size_t step = 0; step < row["finite"].size(); ++step) {
      EXPECT_EQ(row["finite"][step], row["stepped"][step]);  // PyTorch skips exactly the overflowed steps
      scaler.Update(row["finite"][step]);
      EXPECT_EQ(scaler.scale(), row["scale"][step].get<double>()) << "after step " << step;
      EXPECT_EQ(scaler.good_steps(), row["good_steps"][step].get<uint64_t>()) << "after step " << step;
    }
  }
}

}  // namespace
}  // namespace lockstep::engine
