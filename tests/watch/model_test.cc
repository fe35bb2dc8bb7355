// Run directories as they look while ranks write into them.
#include "watch/model.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"
#include "record/metrics.h"
#include "record/run_dir.h"
#include "watch/table.h"

namespace lockstep::watch {
namespace {

using testing::HasSubstr;
using testing::Not;

class WatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
    Result<record::RunDir> run = record::RunDir::Create(Root(), "taehv", /*authority=*/true);
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    run_.emplace(std::move(*run));
    ASSERT_TRUE(run_->WriteRunJson({{"world_size", 2}, {"nnodes", 1}}).ok());
  }

  std::string Root() const { return *dir_ / "runs"; }

  static void Append(const std::string& path, std::string_view text) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    ASSERT_EQ(::write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size())) << path;
  }

  // As a writer would leave it at that time.
  static void AppendAt(const std::string& path, std::string_view text, double t) {
    Append(path, text);
    timespec times[2];
    times[0] = times[1] = {.tv_sec = static_cast<time_t>(t),
                           .tv_nsec = static_cast<long>((t - static_cast<double>(static_cast<time_t>(t))) * 1e9)};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0) << path;
  }

  void Step(int rank, int attempt, uint64_t step, double t, std::vector<std::pair<std::string, double>> scalars) {
    std::string text;
    record::AppendMetricLine({.t = t, .attempt = attempt, .rank = rank, .step = step, .scalars = std::move(scalars)},
                             &text);
    Append(run_->MetricsPath(rank), text);
  }

  Watch& Open(const std::string& which = "taehv") {
    Result<std::unique_ptr<Watch>> opened = Watch::Open(Root(), which);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    watch_ = std::move(*opened);
    return *watch_;
  }

  const RunView& Look(double now) {
    watch_->Poll(now);
    return watch_->view();
  }

  std::optional<TempDir> dir_;
  std::optional<record::RunDir> run_;
  std::unique_ptr<Watch> watch_;
};

TEST_F(WatchTest, StepSpeedLossMemoryAndEtaComeFromTheMetricLines) {
  ASSERT_TRUE(run_->WriteConfig("train:\n  steps: 1000\n").ok());
  Open();
  EXPECT_TRUE(Look(100).ranks.empty());
  for (uint64_t step = 1; step <= 5; ++step) {
    const double t = 100 + 2.0 * static_cast<double>(step);
    Step(0, 0, step, t, {{"loss", 0.5}, {"rank/loss", 0.4}, {"rank/memory/host", 1e9}});
    Step(1, 0, step, t, {{"rank/loss", 0.6}, {"rank/memory/device", 2e9}, {"rank/time/step", 1.5}});
  }
  const RunView& view = Look(120);
  EXPECT_EQ(view.state, "running");
  EXPECT_FALSE(view.ended);
  EXPECT_EQ(view.total, 1000u);
  EXPECT_EQ(view.step, 5u);
  EXPECT_EQ(view.loss, 0.5) << "the value reduced over ranks";
  ASSERT_EQ(view.ranks.size(), 2u);
  EXPECT_NEAR(*view.ranks[0].seconds_per_step, 2, 1e-9) << "from the times of the lines";
  EXPECT_NEAR(*view.ranks[1].seconds_per_step, 1.5, 1e-9) << "as the rank says it";
  EXPECT_EQ(view.ranks[0].loss, 0.4);
  EXPECT_EQ(view.ranks[0].memory_host, 1e9);
  EXPECT_EQ(view.ranks[1].memory_device, 2e9);
  EXPECT_EQ(view.ranks[1].last_seen, 110);
  EXPECT_NEAR(*view.eta, 995 * 2, 1e-6);
  EXPECT_EQ(view.curve.points().size(), 5u);
  const nlohmann::json json = view.ToJson(120);
  EXPECT_EQ(json["ranks"][1]["age"], 10);
  EXPECT_EQ(json["steps_per_second"], 0.5);
  EXPECT_EQ(json["loss_curve"].size(), 5u);
}

TEST_F(WatchTest, ARestartGoesBackAndTheLaterAttemptWins) {
  Open();
  for (uint64_t step = 1; step <= 10; ++step) Step(0, 0, step, 100 + static_cast<double>(step), {{"loss", 1}});
  EXPECT_EQ(Look(111).step, 10u);
  Step(0, 1, 6, 200, {{"loss", 2}});
  Step(0, 1, 7, 201, {{"loss", 2}});
  Step(0, 0, 11, 202, {{"loss", 1}});  // what an orphan of the old attempt still wrote
  const RunView& view = Look(203);
  EXPECT_EQ(view.attempt, 1);
  EXPECT_EQ(view.step, 7u);
  EXPECT_NEAR(*view.seconds_per_step, 1, 1e-9) << "the pause between attempts is no step";
  ASSERT_EQ(view.curve.points().size(), 7u);
  EXPECT_EQ(view.curve.points()[4].mean(), 1);
  EXPECT_EQ(view.curve.points()[5].mean(), 2);
}

TEST_F(WatchTest, AValidationThatComesLateDoesNotMoveTheRankBack) {
  Open();
  Step(0, 0, 100, 100, {{"loss", 1}});
  Step(0, 0, 90, 101, {{"val/psnr", 30}});
  EXPECT_EQ(Look(102).step, 100u);
  EXPECT_EQ(watch_->view().ranks[0].last_seen, 101);
}

TEST_F(WatchTest, TornLinesAreCountedAndMissingRanksNamed) {
  Open();
  Step(0, 0, 1, 100, {{"loss", 1}});
  Append(run_->MetricsPath(0),
         "{\"t\": 100, \"st\n{\"t\": 101, \"step\": 2, \"scalars\": {\"loss\": \"nan\"}}\n{\"t\"");
  const RunView& view = Look(102);
  EXPECT_EQ(view.step, 2u);
  EXPECT_EQ(view.bad_lines, 1u);
  EXPECT_TRUE(std::isnan(*view.loss));
  std::string text;
  for (const std::string& line : Render(view, 102, {})) text += line + "\n";
  EXPECT_THAT(text, HasSubstr("no step yet of rank 1"));
  run_->Release();
  EXPECT_THAT(Join(Render(Look(103), 103, {}), "\n"), HasSubstr("no step of rank 1"));
  EXPECT_THAT(text, HasSubstr("1 metric line could not be read"));
  EXPECT_THAT(text, HasSubstr("nan"));
  EXPECT_EQ(view.ToJson(102)["loss"], "nan");
}

TEST_F(WatchTest, ARankOfANodeWhoseClockIsWrongIsNotSilent) {
  Open();
  record::NodeSample sample;
  sample.node = 1;
  record::RankSample rank;
  rank.rank = 1;
  rank.steps = 1;
  rank.seconds = {{"step", 1.0}};
  ASSERT_TRUE(MakeDirs(record::TelemetryDir(run_->path())).ok());
  for (uint64_t n = 1; n <= 40; ++n) {
    // Set back by an hour in the middle.
    sample.t = 10000 + static_cast<double>(n) - (n > 20 ? 3600 : 0);
    sample.n = rank.step.emplace(n);
    rank.step_t = sample.t - 2;
    sample.ranks = {rank};
    std::string line;
    record::AppendSampleLine(sample, &line);
    AppendAt(record::SamplePath(run_->path(), 1), line, 10000 + static_cast<double>(n));
    const RunView& view = Look(10000.5 + static_cast<double>(n));
    ASSERT_EQ(view.ranks.size(), 1u);
    ASSERT_EQ(view.ranks[0].step, n);
    ASSERT_EQ(view.ranks[0].seconds_per_step, 1.0);
    ASSERT_EQ(view.ranks[0].last_seen, 9998 + static_cast<double>(n)) << n;
    ASSERT_EQ(view.nodes.at(0).t, 10000 + static_cast<double>(n)) << n;
    ASSERT_TRUE(view.findings.empty()) << view.findings[0].text;
  }
}

TEST_F(WatchTest, MetricLinesOfANodeWhoseClockIsWrongAreNotSilent) {
  record::NodeSample sample;
  sample.node = 1;
  sample.t = 9700;  // 300 s behind
  record::RankSample rank;
  rank.rank = 0;
  sample.ranks = {rank};
  std::string line;
  record::AppendSampleLine(sample, &line);
  ASSERT_TRUE(MakeDirs(record::TelemetryDir(run_->path())).ok());
  AppendAt(record::SamplePath(run_->path(), 1), line, 10000);
  Step(0, 0, 7, 9699, {{"loss", 1}});
  Open();
  const RunView& view = Look(10001);
  ASSERT_EQ(view.ranks.size(), 1u);
  EXPECT_EQ(view.ranks[0].last_seen, 9999);
  EXPECT_FALSE(view.ranks[0].Silent(10001));
}

TEST_F(WatchTest, ProgramsWithoutMetricLinesAreReadFromTheirLogs) {
  ASSERT_TRUE(run_->MakeAttemptDirs(0, 0).ok());
  Append(run_->LogPath(0, 0, 0),
         "starting\nstep 5/50 | loss 0.5 | 0.250 s/it\nstep 6/50 | loss 0.4 | 0.250 s/it | lr 1e-4 | 61.5 samples/s\n");
  Append(run_->LogPath(0, 0, 1), " 12%|#| 6/50 [00:02<00:11,  4.00it/s]\r");
  Open();
  const RunView& view = Look(100);
  EXPECT_EQ(view.total, 50u);
  EXPECT_EQ(view.step, 6u);
  EXPECT_EQ(view.loss, 0.4);
  EXPECT_EQ(view.learning_rate, 1e-4);
  EXPECT_EQ(view.samples_per_second, 61.5);
  ASSERT_EQ(view.ranks.size(), 2u);
  EXPECT_NEAR(*view.ranks[1].seconds_per_step, 0.25, 1e-9);
  EXPECT_NEAR(*view.eta, 11, 1e-9);
  EXPECT_EQ(view.curve.points().size(), 2u);
  // A new attempt has new logs.
  ASSERT_TRUE(run_->MakeAttemptDirs(1, 0).ok());
  Append(run_->LogPath(1, 0, 0), "step 3/50 | loss 0.6\n");
  EXPECT_EQ(Look(101).step, 3u);
  EXPECT_EQ(watch_->view().attempt, 1);
}

TEST_F(WatchTest, TheSpeedOfPlainLinesIsTheProgramsNotTheIntervalOfTheLooks) {
  ASSERT_TRUE(run_->MakeAttemptDirs(0, 0).ok());
  const std::string log = run_->LogPath(0, 0, 0);
  Open();
  // 0.1 s a step, every tenth said, looked at every 5 s.
  uint64_t step = 0;
  for (int look = 0; look < 4; ++look) {
    for (int line = 0; line < 5; ++line) {
      step += 10;
      AppendAt(log, "step " + std::to_string(step) + "/1000 loss 0.5\n", 1000 + 0.1 * static_cast<double>(step));
    }
    Look(1000 + 0.1 * static_cast<double>(step) + 0.7);
    if (look > 0) EXPECT_NEAR(watch_->view().seconds_per_step.value_or(0), 0.1, 1e-6) << look;
  }
  EXPECT_NEAR(*watch_->view().eta, 80, 1e-4);
}

TEST_F(WatchTest, OneLookIsEnoughWhereLinesSayWhenTheyWereWritten) {
  ASSERT_TRUE(run_->MakeAttemptDirs(0, 0).ok());
  std::string text;
  for (int step = 0; step < 200; ++step) {  // four a second, stamps cut to seconds
    text +=
        "[2026-11-15 10:00:" + std::to_string(10 + step / 4) + "] INFO step " + std::to_string(step) + " loss 0.5\n";
  }
  Append(run_->LogPath(0, 0, 0), text);
  Open();
  EXPECT_NEAR(Look(100).seconds_per_step.value_or(0), 0.25, 0.01);
}

TEST_F(WatchTest, OneLookAtAnEndedRunFindsTheSpeedItsLauncherMeasured) {
  ASSERT_TRUE(run_->MakeAttemptDirs(0, 0).ok());
  Append(run_->LogPath(0, 0, 0), "step 10 loss 0.5\nstep 20 loss 0.4\n");
  run_->AppendEvent("rank_progress", {{"attempt", 0}, {"rank", 0}, {"step", 20}, {"seconds_per_step", 0.125}});
  run_->AppendEvent("rank_progress", {{"attempt", 1}, {"rank", 0}, {"step", 20}, {"seconds_per_step", 9}});
  ASSERT_TRUE(run_->WriteReport({{"outcome", "succeeded"}, {"exit_code", 0}}).ok());
  run_->Release();
  Open();
  EXPECT_EQ(Look(100).seconds_per_step, 0.125);
}

TEST_F(WatchTest, ABarOfTheEvaluationHasNoStepSpeedOrLossOfTheTraining) {
  ASSERT_TRUE(run_->MakeAttemptDirs(0, 0).ok());
  Append(run_->LogPath(0, 0, 0),
         "\r 40%|####  | 20/50 [00:02<00:11,  4.00it/s, loss=0.5]\n"
         "\rEvaluating: 100%|#####| 10/10 [00:01<00:00, 100.00it/s, loss=7.5]\x1b[A\n"
         "\rWriting model shards: 100%|###| 1/1 [00:00<00:00, 94.43it/s]\n");
  Open();
  const RunView& view = Look(100);
  EXPECT_EQ(view.step, 20u);
  EXPECT_EQ(view.total, 50u);
  EXPECT_EQ(view.loss, 0.5);
  EXPECT_NEAR(*view.seconds_per_step, 0.25, 1e-9);
}

TEST_F(WatchTest, TheNumberOfStepsMayStandInTheLogAlone) {
  ASSERT_TRUE(run_->MakeAttemptDirs(0, 0).ok());
  Append(run_->LogPath(0, 0, 0), "step 1/40 | loss 0.5\n");
  Step(0, 0, 7, 100, {{"loss", 1}});
  Open();
  EXPECT_EQ(Look(101).total, 40u);
  EXPECT_EQ(watch_->view().step, 7u) << "the metric line is newer than the log's";
}

TEST_F(WatchTest, TheEndIsSeenAndSaid) {
  Open();
  Step(0, 0, 3, 100, {{"loss", 1}});
  EXPECT_FALSE(Look(101).ended);
  EXPECT_FALSE(watch_->MayHaveEnded());
  Step(0, 0, 4, 102, {{"loss", 1}});
  ASSERT_TRUE(run_->WriteReport({{"outcome", "failed"}, {"exit_code", 5}, {"reason", "rank 1 failed"}}).ok());
  run_->Release();
  EXPECT_TRUE(watch_->MayHaveEnded());
  const RunView& view = Look(103);
  EXPECT_TRUE(view.ended);
  EXPECT_EQ(view.step, 4u) << "what was written before the end is read";
  EXPECT_EQ(EndText(view), "run 'taehv' has ended: failed, rank 1 failed");
}

TEST_F(WatchTest, ALogFileOfAnyLauncherWillDo) {
  const std::string path = *dir_ / "slurm-1.out";
  AppendAt(path, "0: step 1/3 | loss 0.5\n1: step 1/3 | loss 0.7\n", 1e9);
  Open(path);
  EXPECT_EQ(Look(1e9 + 1).step, 1u);
  ASSERT_EQ(watch_->view().ranks.size(), 2u);
  AppendAt(path, "0: step 2/3 | loss 0.4\n", 1e9 + 2);
  EXPECT_EQ(Look(1e9 + 5).step, 2u);
  EXPECT_EQ(watch_->view().ranks[0].last_seen, 1e9 + 2) << "the time of the file, not of the look";
  AppendAt(path, "0: step 3/3 | loss 0.3\n", 1e9 + 4);
  const RunView& view = Look(1e9 + 6);
  EXPECT_NEAR(*view.ranks[0].seconds_per_step, 2, 1e-6) << "from the times at which lines were written";
  EXPECT_EQ(view.state, "complete");
  EXPECT_TRUE(Look(1e11).ended) << "nothing followed the last step";
  EXPECT_THAT(EndText(watch_->view()), HasSubstr("step 3 of 3"));
}

TEST_F(WatchTest, EpochsOfABarAddUpToTheStepsOfTheRun) {
  const std::string path = *dir_ / "train.log";
  AppendAt(path, "\rEpoch 1:  50%|## | 5/10 [00:05<00:05,  1.00it/s, loss=0.5]\n", 1e9);
  Open(path);
  EXPECT_EQ(Look(1e9 + 1).step, 5u);
  AppendAt(path, "\rEpoch 1: 100%|## | 10/10 [00:10<00:00,  1.00it/s, loss=0.4]\n", 1e9 + 5);
  EXPECT_EQ(Look(1e9 + 6).state, "complete") << "if nothing follows";
  AppendAt(path, "\rEpoch 2:  40%|## | 4/10 [00:04<00:06,  1.00it/s, loss=0.3]\n", 1e9 + 9);
  const RunView& view = Look(1e9 + 10);
  EXPECT_EQ(view.state, "running");
  EXPECT_EQ(view.step, 14u);
  EXPECT_FALSE(view.total) << "nobody knows how many epochs there are";
  EXPECT_EQ(view.ToJson(0)["epoch"], nlohmann::json({{"number", 2}, {"of", nullptr}, {"step", 4}, {"total", 10}}));
  EXPECT_EQ(view.curve.points().size(), 3u) << "a curve that goes on";
  EXPECT_THAT(Render(view, 1e9 + 10, {})[0], HasSubstr("running | epoch 2: 4/10 | step 14 |"));
}

TEST_F(WatchTest, WhatIsNeitherRunNorLogIsRefused) {
  for (const std::string& which : {std::string("nope"), *dir_ / "nope.log", *dir_ / "runs", std::string("/dev/null")}) {
    Result<std::unique_ptr<Watch>> opened = Watch::Open(Root(), which);
    ASSERT_FALSE(opened.ok()) << which;
    EXPECT_EQ(opened.status().code(), Code::kUsage);
    EXPECT_FALSE(opened.status().hint().empty());
  }
}

RunView ManyRanks(int n) {
  RunView view;
  view.name = "big";
  view.state = "running";
  view.world = n + 2;
  view.total = 1000;
  for (int rank = 0; rank < n; ++rank) {
    view.ranks.push_back({.rank = rank,
                          .step = static_cast<uint64_t>(100 + rank % 7),
                          .seconds_per_step = rank == 777 ? 2.5 : 0.5,
                          .last_seen = 1000});
  }
  for (uint64_t step = 0; step < 100; ++step) view.curve.Add(step, 1.0 / static_cast<double>(step + 1));
  return view;
}

TEST(Render, AThousandRanksFitOnTheScreenAndTheSlowestIsNamed) {
  for (size_t rows : {4, 10, 24, 50}) {
    const std::vector<std::string> lines = Render(ManyRanks(1000), 1001, {.columns = 79, .rows = rows, .utf8 = true});
    EXPECT_LE(lines.size(), rows);
    std::string text;
    for (const std::string& line : lines) {
      int characters = 0;
      for (char c : line) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
      EXPECT_LE(characters, 79) << line;
      text += line + "\n";
    }
    EXPECT_THAT(text, HasSubstr("more ranks"));
    if (rows >= 10) EXPECT_THAT(text, HasSubstr("no step yet of ranks 1000-1001"));
    if (rows >= 24) EXPECT_THAT(text, HasSubstr("\nLOSS, logarithmic\n"));
  }
  std::string text;
  for (const std::string& line : Render(ManyRanks(1000), 1001, {})) text += line + "\n";
  EXPECT_THAT(text, HasSubstr("slowest rank 777"));
}

TEST(Render, ARankThatFellSilentIsMarkedAndColoursOnlyWhereAsked) {
  RunView view = ManyRanks(2);
  view.ranks[1].last_seen = 900;
  auto text = [&](bool colour) {
    std::string all;
    for (const std::string& line : Render(view, 1001, {.colour = colour})) all += line + "\n";
    return all;
  };
  EXPECT_THAT(text(false), HasSubstr("1m41s ago (silent)"));
  EXPECT_THAT(text(false), Not(HasSubstr("1.0s ago (silent)")));
  EXPECT_THAT(text(false), Not(HasSubstr("\x1b")));
  EXPECT_THAT(text(true), HasSubstr("\x1b[33m"));
  view.ranks[1].seconds_per_step = 1;
  view.ranks[1].steps_per_line = 60;
  EXPECT_THAT(text(false), Not(HasSubstr("(silent)"))) << "its next line is not due";
}

// What tqdm and nanoGPT print, and the loss of each step then.
TEST_F(WatchTest, TheNewestLossIsShownAndTheCurveHasTheOneOfEachStep) {
  const auto bar = [](int step, int loss) {
    return fmt::format("\r {}/40 [00:01<00:09, 1.00it/s{}]", step, loss > 0 ? fmt::format(", loss={}", loss) : "");
  };
  const struct {
    const char* what;
    std::vector<std::string> lines;
    double newest;
    std::vector<double> curve;
  } cases[] = {
      {"update(1), set_postfix",
       {bar(0, 0), bar(1, 0), bar(1, 11), bar(2, 11), bar(2, 12), bar(3, 12), bar(3, 13)},
       13,
       {11, 12, 13}},
      {"for ... in bar: set_postfix",
       {bar(0, 0), bar(0, 11), bar(1, 11), bar(1, 12), bar(2, 12), bar(2, 13)},
       13,
       {11, 12}},
      {"a bar that was begun earlier", {bar(7, 17), bar(8, 17), bar(8, 18)}, 18, {17, 17}},
      {"ranks without a prefix", {"Step: 1, Rank: 0, loss = 2.5\n", "Step: 1, Rank: 1, loss = 3.5\n"}, 2.5, {2.5}},
      {"nanoGPT", {"step 500: train loss 2.1, val loss 2.3\n", "iter 500: loss 0.25, time 9.00ms\n"}, 0.25, {0.25}},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.what);
    const std::string path = *dir_ / "job.log";
    ::unlink(path.c_str());
    Append(path, Join(test.lines, ""));
    Open(path);
    const RunView& view = Look(100);
    EXPECT_EQ(view.loss, test.newest);
    EXPECT_EQ(view.ranks[0].loss, test.newest);
    std::vector<double> curve;
    for (const SeriesPoint& point : view.curve.points()) curve.push_back(point.mean());
    EXPECT_EQ(curve, test.curve);
  }
}

TEST_F(WatchTest, AnEtaOfTheEpochIsNoneOfTheRun) {
  const auto lines = [](int epoch, int step, const char* eta) {
    return fmt::format("Epoch: [{}]  [{}/117]  eta: {}  loss: 2.1  time: 0.2510  data: 0.0002\n", epoch, step, eta);
  };
  const struct {
    std::string text;
    double eta;  // -1: none
  } cases[] = {
      {lines(0, 110, "0:00:01") + lines(1, 10, "0:00:26"), -1},
      {lines(0, 110, "0:00:01") + lines(1, 10, "0:00:26") + lines(1, 110, "0:00:01"), -1},
      {lines(0, 110, "0:10:01") + lines(1, 10, "0:09:26"), 566},
      {lines(0, 110, "0:00:28") + lines(1, 10, "0:00:26"), 26},  // the last epoch of a program that tells the run's
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.text);
    const std::string path = *dir_ / "job.log";
    ::unlink(path.c_str());
    AppendAt(path, test.text, 100);
    Open(path);
    EXPECT_DOUBLE_EQ(Look(100).eta.value_or(-1), test.eta);
    if (test.eta < 0) continue;
    EXPECT_DOUBLE_EQ(Look(120).eta.value_or(-1), test.eta - 20);
    EXPECT_DOUBLE_EQ(Look(9000).eta.value_or(-1), test.eta) << "as it was said last";
  }
}

TEST_F(WatchTest, EqualNamesAreToldApartByTheirFolders) {
  std::vector<std::unique_ptr<Watch>> watches;
  for (const char* name : {"a/x/job.log", "b/x/job.log", "other.log", "other.log"}) {
    ASSERT_TRUE(MakeDirs(std::filesystem::path(*dir_ / name).parent_path()).ok());
    Append(*dir_ / name, "step 1/9 loss 1\n");
    Result<std::unique_ptr<Watch>> opened = Watch::Open(Root(), *dir_ / name);
    ASSERT_TRUE(opened.ok());
    watches.push_back(std::move(*opened));
  }
  TellNamesApart(watches);
  std::vector<std::string> names;
  for (const auto& watch : watches) names.push_back(watch->view().name);
  EXPECT_EQ(names, (std::vector<std::string>{"a/x/job.log", "b/x/job.log", "other.log", "other.log (2)"}));
}

TEST(PlainTable, PartsThatDoNotFitAreLeftOutAndCutLinesSaySo) {
  RunView view;
  view.name = "job";
  view.state = "running";
  view.step = 123456;
  view.total = 200000;
  view.seconds_per_step = 0.5;
  view.loss = 0.1234;
  view.eta = 38272;
  view.findings.push_back({.kind = "straggler", .text = std::string(60, 'x')});
  const std::vector<std::string> lines = Render(view, 100, {.columns = 40});
  EXPECT_EQ(lines[0], "run job | running");
  EXPECT_EQ(lines[1], " ! " + std::string(34, 'x') + "...");
}

}  // namespace
}  // namespace lockstep::watch
