#include "track/run_curve.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "base/files.h"

namespace lockstep::track {
namespace {

class RunCurveTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
  }

  void Write(int attempt, uint64_t step, std::vector<std::pair<std::string, double>> scalars) {
    std::string line;
    record::AppendMetricLine({.t = 1, .attempt = attempt, .step = step, .scalars = std::move(scalars)}, &line);
    std::ofstream(path(), std::ios::app) << line;
  }
  std::string path() const { return dir_->path() + "/rank-0.jsonl"; }
  RunCurve Make() {
    return RunCurve({.metrics_path = path(),
                     .title = "night-1",
                     .recipe = "taehv",
                     .score = "psnr",
                     .more_is_better = true,
                     .steps = 40});
  }

  std::optional<TempDir> dir_;
};

TEST_F(RunCurveTest, ShowsLossScoreAndLearningRate) {
  for (uint64_t step = 1; step <= 20; ++step) {
    Write(0, step, {{"loss", 1.0 / static_cast<double>(step)}, {"lr", 1e-3}, {"rank/time/step", 0.1}});
    if (step % 5 == 0) {
      Write(0, step, {{"val/loss", 0.5}, {"val/psnr", step == 10 ? 30.0 : 20.0}});
    }
  }
  RunCurve run = Make();
  const Curve curve = run.Read();
  EXPECT_EQ(run.size(), 20u);
  EXPECT_EQ(curve.title, "night-1");
  EXPECT_EQ(curve.subtitle, "taehv  ·  step 20 of 40");
  ASSERT_EQ(curve.panels.size(), 3u);
  ASSERT_EQ(curve.panels[0].series.size(), 2u);
  EXPECT_EQ(curve.panels[0].series[0].points.size(), 20u);
  EXPECT_EQ(curve.panels[0].series[1].points, (Points{{5, 0.5}, {10, 0.5}, {15, 0.5}, {20, 0.5}}));
  EXPECT_EQ(curve.panels[1].label, "PSNR (dB)");
  EXPECT_EQ(curve.panels[1].series[0].note, "(best 30 at step 10)");
  EXPECT_EQ(curve.panels[2].series[0].name, "learning rate");
  EXPECT_TRUE(curve.marks.empty());
}

TEST_F(RunCurveTest, ALaterAttemptReplacesWhatCameAfterItsCheckpoint) {
  RunCurve run = Make();
  for (uint64_t step = 1; step <= 30; ++step) Write(0, step, {{"loss", 1}});
  EXPECT_EQ(run.Read().panels[0].series[0].points.size(), 30u);
  // From a checkpoint at step 20; what was measured up to 30 is no longer in the weights.
  for (uint64_t step = 21; step <= 25; ++step) Write(1, step, {{"loss", 2}});
  const Curve curve = run.Read();
  const Points& points = curve.panels[0].series[0].points;
  ASSERT_EQ(points.size(), 25u);
  EXPECT_EQ(points[19], (Point{20, 1}));
  EXPECT_EQ(points[20], (Point{21, 2}));
  ASSERT_EQ(curve.marks.size(), 1u);
  EXPECT_EQ(curve.marks[0].x, 21);
  EXPECT_EQ(curve.marks[0].text, "attempt 1");
  EXPECT_EQ(curve.subtitle, "taehv  ·  step 25 of 40  ·  2 attempts");
  // From the start again: nothing of the earlier ones is left.
  Write(2, 1, {{"loss", 3}});
  EXPECT_EQ(run.Read().panels[0].series[0].points, (Points{{1, 3}}));
}

TEST_F(RunCurveTest, WithoutMetricLinesThereIsAnEmptyPanel) {
  RunCurve run = Make();
  EXPECT_EQ(run.Read().panels.size(), 1u);
  EXPECT_EQ(run.size(), 0u);
}

}  // namespace
}  // namespace lockstep::track
