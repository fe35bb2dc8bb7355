#include "track/metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "record/metrics.h"

namespace lockstep::track {
namespace {

using record::MetricLine;

class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
    SetLogLevel(LogLevel::kOff);
  }

  std::string Path() const { return *dir_ / "metrics/rank-2.jsonl"; }

  std::unique_ptr<Metrics> Open(MetricsOptions options = {}) {
    options.jsonl_path = Path();
    options.rank = 2;
    Result<std::unique_ptr<Metrics>> metrics = Metrics::Start(std::move(options));
    EXPECT_TRUE(metrics.ok()) << metrics.status().ToString();
    return std::move(*metrics);
  }

  std::vector<MetricLine> Lines() const {
    std::vector<MetricLine> lines;
    record::MetricFollower follower(Path());
    while (follower.Read([&](const MetricLine& line) { lines.push_back(line); })) {
    }
    EXPECT_EQ(follower.bad_lines(), 0u);
    EXPECT_FALSE(follower.torn_tail());
    return lines;
  }

  std::optional<TempDir> dir_;
};

TEST_F(MetricsTest, AStepIsOneLineWithEveryScalarOfTheStep) {
  std::unique_ptr<Metrics> metrics = Open({.attempt = 4});
  const MetricId loss = metrics->Register("loss"), lr = metrics->Register("lr");
  for (uint64_t step = 1; step <= 3; ++step) {
    metrics->Set(loss, step, 1.0 / static_cast<double>(step));
    metrics->Set(lr, step, 1e-4);
    metrics->EndStep(step);
  }
  ASSERT_TRUE(metrics->Flush().ok());
  const std::vector<MetricLine> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  for (uint64_t step = 1; step <= 3; ++step) {
    const MetricLine& line = lines[step - 1];
    EXPECT_EQ(line.step, step);
    EXPECT_EQ(line.attempt, 4);
    EXPECT_EQ(line.rank, 2);
    EXPECT_GT(line.t, 1.6e9);
    EXPECT_EQ(line.scalars.size(), 2u);
    EXPECT_EQ(line.Find("loss"), 1.0 / static_cast<double>(step));
    EXPECT_EQ(line.Find("lr"), 1e-4);
  }
  EXPECT_EQ(metrics->dropped(), 0u);
}

TEST_F(MetricsTest, TheSameNameIsTheSameMetricAndTheLastValueOfAStepCounts) {
  std::unique_ptr<Metrics> metrics = Open();
  const MetricId a = metrics->Register("loss"), b = metrics->Register("loss");
  EXPECT_EQ(a.index, b.index);
  metrics->Set(a, 1, 5);
  metrics->Set(b, 1, 6);
  metrics->EndStep(1);
  metrics.reset();
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0].scalars, (std::vector<std::pair<std::string, double>>{{"loss", 6}}));
}

TEST_F(MetricsTest, ValuesOfOtherStepsKeepTheirStep) {
  std::unique_ptr<Metrics> metrics = Open();
  const MetricId loss = metrics->Register("loss"), psnr = metrics->Register("val/psnr");
  metrics->Set(loss, 11, 0.5);  // ahead of the step that ends
  metrics->Set(psnr, 3, 30);    // a validation in the background
  metrics->Set(loss, 10, 0.6);
  metrics->EndStep(10);
  ASSERT_TRUE(metrics->Flush().ok());
  const std::vector<MetricLine> lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].step, 3u);
  EXPECT_EQ(lines[0].Find("val/psnr"), 30);
  EXPECT_EQ(lines[1].step, 10u);
  EXPECT_EQ(lines[1].Find("loss"), 0.6);
  EXPECT_FALSE(lines[1].Find("val/psnr"));
  EXPECT_EQ(lines[2].step, 11u) << "Flush leaves nothing behind";
}

TEST_F(MetricsTest, AStepWithoutScalarsIsStillASignOfLife) {
  Open()->EndStep(8);
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0].step, 8u);
}

TEST_F(MetricsTest, WhatWasNotEndedIsWrittenAtTheEnd) {
  std::unique_ptr<Metrics> metrics = Open();
  metrics->Set(metrics->Register("loss"), 5, 1);
  metrics.reset();
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0].step, 5u);
}

TEST_F(MetricsTest, WithoutAFlushTheWriterWritesByItself) {
  std::unique_ptr<Metrics> metrics = Open({.flush = std::chrono::milliseconds(10)});
  metrics->Set(metrics->Register("loss"), 1, 1);
  metrics->EndStep(1);
  while (Lines().empty()) std::this_thread::yield();  // the test's time limit is the failure
  EXPECT_EQ(Lines().size(), 1u);
}

TEST_F(MetricsTest, AFullRingDropsCountsAndSaysSoAsAMetric) {
  // An hour between two looks: nothing is taken out before the flush. The first look of the writer may be under way,
  // hence far more values than places.
  std::unique_ptr<Metrics> metrics = Open({.ring_capacity = 8, .flush = std::chrono::hours(1)});
  const MetricId loss = metrics->Register("loss");
  for (uint64_t step = 0; step < 10000; ++step) metrics->Set(loss, step, 1);
  const uint64_t dropped = metrics->dropped();
  EXPECT_GT(dropped, 0u);
  ASSERT_TRUE(metrics->Flush().ok());
  std::vector<MetricLine> lines = Lines();
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.size() + dropped, 10000u);
  EXPECT_EQ(lines.front().Find("rank/metrics_dropped"), static_cast<double>(dropped));
  metrics->Set(loss, 20000, 1);
  metrics->EndStep(20000);
  ASSERT_TRUE(metrics->Flush().ok());
  EXPECT_FALSE(Lines().back().Find("rank/metrics_dropped")) << "said when it changes, not for ever";
}

TEST_F(MetricsTest, ManyThreadsRegisterSetAndFlushAtTheSameTime) {
  constexpr int kThreads = 4;
  constexpr uint64_t kSteps = 300;
  std::unique_ptr<Metrics> metrics = Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&metrics, i] {
      const MetricId id = metrics->Register("thread/" + std::to_string(i));
      for (uint64_t step = 0; step < kSteps; ++step) {
        metrics->Set(id, step, static_cast<double>(step));
        if (step % 100 == 0) EXPECT_TRUE(metrics->Flush().ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(metrics->Flush().ok());
  ASSERT_EQ(metrics->dropped(), 0u);
  std::vector<int> seen(kThreads, 0);
  for (const MetricLine& line : Lines()) {
    for (const auto& [name, value] : line.scalars) {
      ++seen[static_cast<size_t>(name.back() - '0')];
      EXPECT_EQ(value, static_cast<double>(*line.step));
    }
  }
  EXPECT_EQ(seen, std::vector<int>(kThreads, kSteps));
}

TEST_F(MetricsTest, ALineThatAKilledWriterLeftOpenSwallowsNothing) {
  ASSERT_TRUE(MakeDirs(*dir_ / "metrics").ok());
  ASSERT_TRUE(WriteFileAtomic(Path(), "{\"step\": 1, \"scalars\": {}}\n{\"step\": 2, \"sca").ok());
  std::unique_ptr<Metrics> metrics = Open();
  metrics->EndStep(2);
  metrics.reset();
  record::MetricFollower follower(Path());
  std::vector<uint64_t> steps;
  while (follower.Read([&](const MetricLine& line) { steps.push_back(*line.step); })) {
  }
  EXPECT_EQ(steps, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(follower.bad_lines(), 1u);
}

TEST_F(MetricsTest, AFullDiskIsAnErrorOfFlushAndTrainingGoesOn) {
  Result<std::unique_ptr<Metrics>> metrics = Metrics::Start({.jsonl_path = "/dev/full"});
  ASSERT_TRUE(metrics.ok()) << metrics.status().ToString();
  (*metrics)->EndStep(1);
  const Status status = (*metrics)->Flush();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/dev/full"), std::string::npos) << status.ToString();
  (*metrics)->EndStep(2);
  EXPECT_FALSE((*metrics)->Flush().ok());
}

// A pipe that nobody reads stands for a disk that does not answer.
TEST_F(MetricsTest, AWriterThatHangsHoldsUpNoTraining) {
  ASSERT_TRUE(MakeDirs(*dir_ / "metrics").ok());
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  const UniqueFd reader(::open(Path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader);
  std::unique_ptr<Metrics> metrics = Open({.ring_capacity = 1024, .flush = std::chrono::milliseconds(1)});
  const MetricId loss = metrics->Register("loss");
  // More than the pipe and the ring hold; were it to wait for the writer, this would never end.
  for (uint64_t step = 0; metrics->dropped() < 100'000; ++step) metrics->Set(loss, step, 1), metrics->EndStep(step);
  std::thread drain([&] {
    char buffer[65536];
    for (ssize_t n = -1; n != 0;) {
      n = ::read(reader.get(), buffer, sizeof buffer);
      if (n < 0) std::this_thread::yield();
    }
  });
  metrics.reset();
  drain.join();
}

TEST_F(MetricsTest, FilesThatAreRemovedMeanwhileAreSaid) {
  const std::string csv = *dir_ / "metrics.csv", tensorboard = *dir_ / "tensorboard";
  for (const MetricsOptions& options : {MetricsOptions{.jsonl_path = Path()}, MetricsOptions{.csv_path = csv},
                                        MetricsOptions{.tensorboard_dir = tensorboard},
                                        MetricsOptions{.wandb = {.dir = *dir_ / "wandb", .name = "run"}}}) {
    Result<std::unique_ptr<Metrics>> metrics = Metrics::Start(options);
    ASSERT_TRUE(metrics.ok()) << metrics.status().ToString();
    const MetricId loss = (*metrics)->Register("loss");
    (*metrics)->Set(loss, 1, 1);
    (*metrics)->Set(loss, 2, 1);
    ASSERT_TRUE((*metrics)->Flush().ok());
    for (const std::string& path : {Path(), csv, tensorboard, *dir_ / "wandb"}) ASSERT_TRUE(RemoveAll(path).ok());
    (*metrics)->Set(loss, 3, 1);
    (*metrics)->Set(loss, 4, 1);
    const Status status = (*metrics)->Flush();
    EXPECT_NE(status.message().find("was removed"), std::string::npos) << status.ToString();
  }
}

TEST_F(MetricsTest, AFolderThatCannotBeMadeIsNamed) {
  ASSERT_TRUE(WriteFileAtomic(*dir_ / "file", "x").ok());
  for (const MetricsOptions& options : {MetricsOptions{.jsonl_path = *dir_ / "file/rank-0.jsonl"},
                                        MetricsOptions{.tensorboard_dir = *dir_ / "file/tensorboard"}}) {
    Result<std::unique_ptr<Metrics>> metrics = Metrics::Start(options);
    ASSERT_FALSE(metrics.ok());
    EXPECT_NE(metrics.status().message().find(*dir_ / "file"), std::string::npos) << metrics.status().ToString();
  }
}

TEST_F(MetricsTest, WithoutAnyFileItIsAStreamToNowhere) {
  Result<std::unique_ptr<Metrics>> metrics = Metrics::Start({});
  ASSERT_TRUE(metrics.ok());
  (*metrics)->Set((*metrics)->Register("loss"), 1, 1);
  (*metrics)->EndStep(1);
  (*metrics)->Text("note", 1, "x");
  EXPECT_TRUE((*metrics)->Flush().ok());
}

}  // namespace
}  // namespace lockstep::track
