// Goodput of runs whose every second is known.
#include "watch/web/goodput.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "record/metrics.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;

class GoodputTest : public testing::Test {
 protected:
  void SetUp() override { dir_.emplace(*TempDir::Create()); }
  std::string Path() const { return *dir_ / "rank-0.jsonl"; }
  void Line(int attempt, uint64_t step, double t, std::vector<std::pair<std::string, double>> scalars) {
    std::string text;
    record::AppendMetricLine({.t = t, .attempt = attempt, .step = step, .scalars = std::move(scalars)}, &text);
    std::ofstream(Path(), std::ios::app) << text;
  }
  static json Event(double t, const char* type, int attempt = 0) {
    return {{"t", t}, {"type", type}, {"attempt", attempt}};
  }
  static double Sum(const Goodput& goodput) {
    double sum = 0;
    for (const Goodput::Part& part : goodput.Parts()) sum += part.seconds;
    return sum;
  }
  std::optional<TempDir> dir_;
};

TEST_F(GoodputTest, EverySecondOfARestartedRunIsInOnePart) {
  // 1000: start; 1010 to 1020: steps 1 to 10, one a second, step 5 held up 0.5 s by saving; killed at 1025, begun again
  // at 1030 from the checkpoint of step 5; steps 6 to 20 from 1040; validation of 7 s after step 15; a stall of 20 s
  // before step 18; the end 2 s after the last step.
  for (uint64_t step = 1; step <= 10; ++step) {
    Line(0, step, 1010.0 + static_cast<double>(step),
         {{"rank/time/step", 1}, {"rank/time/checkpoint", step == 5 ? 0.5 : 0}});
  }
  double t = 1040;
  for (uint64_t step = 6; step <= 20; ++step) {
    t += 1 + (step == 16 ? 7 : step == 18 ? 20 : 0);
    Line(1, step, t, {{"rank/time/step", 1}});
  }
  const std::vector<json> events = {Event(1000, "run_started"),       Event(1000, "attempt_started", 0),
                                    Event(1025, "attempt_ended", 0),  Event(1030, "attempt_started", 1),
                                    Event(1062, "stalled", 1),        Event(1080, "stall_over", 1),
                                    Event(t + 2, "attempt_ended", 1), Event(t + 2, "run_ended")};
  const Goodput goodput = MeasureGoodput(Path(), events, t + 2);
  EXPECT_DOUBLE_EQ(goodput.wall, t + 2 - 1000);
  EXPECT_NEAR(Sum(goodput), goodput.wall, 1e-6);
  EXPECT_NEAR(goodput.training, 4.5 + 15, 1e-6);
  EXPECT_NEAR(goodput.repeated, 5, 1e-6);
  EXPECT_NEAR(goodput.checkpoints, 0.5, 1e-6);
  EXPECT_NEAR(goodput.startup, 10 + 10, 1e-6);
  EXPECT_NEAR(goodput.restarts, 10, 1e-6);
  EXPECT_NEAR(goodput.stalls, 20, 1e-6);
  EXPECT_NEAR(goodput.other, 7 + 2, 1e-6);
  EXPECT_EQ(goodput.steps, 20u);
  EXPECT_EQ(goodput.repeated_steps, 5u);
  EXPECT_NEAR(*goodput.ratio(), 19.5 / goodput.wall, 1e-9);
}

TEST_F(GoodputTest, LaunchesRollbacksPausesAndClocksThatJump) {
  struct Case {
    const char* what;
    std::vector<std::tuple<int, uint64_t, double>> lines;
    std::vector<json> events;
    double end;
    double training, repeated, down, other;
  };
  const std::vector<Case> cases = {
      {"launched again later",
       {{0, 1, 11}, {0, 2, 12}, {1, 3, 101}, {1, 4, 102}},
       {Event(10, "run_started"), Event(10, "attempt_started", 0), Event(12, "attempt_ended", 0),
        Event(12, "run_ended"), Event(100, "run_started"), Event(100, "attempt_started", 1)},
       102,
       4,
       0,
       88,
       0},
      {"killed with its launcher after a validation, launched again later",
       {{0, 1, 11}, {0, 2, 12}, {0, 3, 20}, {1, 4, 101}},
       {Event(10, "run_started"), Event(10, "attempt_started", 0), Event(100, "run_started"),
        Event(100, "attempt_started", 1)},
       101,
       4,
       0,
       80,
       7},
      {"rolled back in the same process",
       {{0, 1, 11}, {0, 2, 12}, {0, 3, 13}, {0, 2, 14}, {0, 3, 15}, {0, 4, 16}},
       {Event(10, "run_started")},
       16,
       4,
       2,
       0,
       0},
      {"a clock set back", {{0, 1, 11}, {0, 2, 5}, {0, 3, 12}}, {Event(10, "run_started")}, 12, 2, 0, 0, 0},
      {"no events at all", {{0, 1, 11}, {0, 2, 12}}, {}, 0, 1, 0, 0, 0},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    std::ofstream(Path(), std::ios::trunc);
    for (const auto& [attempt, step, t] : one.lines) Line(attempt, step, t, {{"time/step", 1}});
    const Goodput goodput = MeasureGoodput(Path(), one.events, one.end);
    EXPECT_NEAR(Sum(goodput), goodput.wall, 1e-6);
    EXPECT_NEAR(goodput.training, one.training, 1e-6);
    EXPECT_NEAR(goodput.repeated, one.repeated, 1e-6);
    EXPECT_NEAR(goodput.down, one.down, 1e-6);
    EXPECT_NEAR(goodput.other, one.other, 1e-6);
  }
}

TEST_F(GoodputTest, AValidationThatComesLateIsNoRollback) {
  for (uint64_t step = 1; step <= 10; ++step) {
    Line(0, step, 100.0 + static_cast<double>(step), {{"time/step", 1}});
    if (step == 7) Line(0, 4, 107.5, {{"val/psnr", 30}});
  }
  const Goodput goodput = MeasureGoodput(Path(), {Event(100, "run_started")}, 110);
  EXPECT_NEAR(Sum(goodput), goodput.wall, 1e-6);
  EXPECT_NEAR(goodput.training, 10, 1e-6);
  EXPECT_EQ(goodput.steps, 10u);
  EXPECT_EQ(goodput.repeated_steps, 0u);
}

TEST_F(GoodputTest, IsUnknownWithoutStepsAndCountsLongGapsOfSilentProgramsAsPauses) {
  EXPECT_FALSE(MeasureGoodput(Path(), {}, 100).ratio().has_value());
  for (uint64_t step = 1; step <= 20; ++step)
    Line(0, step, 100.0 + static_cast<double>(step) + (step > 10 ? 500 : 0), {{"loss", 1}});
  const Goodput goodput = MeasureGoodput(Path(), {Event(100, "run_started")}, 0);
  EXPECT_NEAR(Sum(goodput), goodput.wall, 1e-6);
  EXPECT_NEAR(goodput.other, 501 - 10, 1e-6);
}

}  // namespace
}  // namespace lockstep::watch
