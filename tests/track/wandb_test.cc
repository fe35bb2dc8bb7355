// Judged by wandb's own message classes (read_wandb.py); its uploader reads whole runs in test_trackers.py.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "paths.h"
#include "track/metrics.h"
#include "track/wandb_fragments.h"
#include "track/wandb_live.h"
#include "track/wandb_log.h"
#include "track/wandb_records.h"

namespace lockstep::track {
namespace {

using nlohmann::json;

class WandbTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<TempDir> dir = TempDir::Create();
    ASSERT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
  }

  std::string Dir() const { return *dir_ / "wandb"; }

  std::unique_ptr<Metrics> Open(uint64_t first_step = 0, const std::string& console = "", bool from_now = false) {
    MetricsOptions options;
    options.first_step = first_step;
    options.flush = std::chrono::milliseconds(20);
    options.wandb = {.dir = Dir(),
                     .name = "night-1",
                     .project = "taehv",
                     .console = console,
                     .console_from_now = from_now,
                     .secrets = {"hunter2hunter2"}};
    Result<std::unique_ptr<Metrics>> metrics = Metrics::Start(options);
    EXPECT_TRUE(metrics.ok()) << metrics.status().ToString();
    return std::move(*metrics);
  }

  static void Steps(Metrics& metrics, uint64_t first, uint64_t last, double value) {
    const MetricId loss = metrics.Register("loss");
    for (uint64_t step = first; step <= last; ++step) {
      metrics.Set(loss, step, value);
      metrics.EndStep(step);
    }
  }

  std::string File(size_t fragment) const {
    const std::vector<std::string> folders = WandbFragments(Dir());
    if (fragment >= folders.size()) return "";
    const std::string& folder = folders[fragment];
    return folder + "/run-" + folder.substr(folder.rfind('-') + 1) + ".wandb";
  }

  // Records of one fragment, in order.
  json Read(size_t fragment) const {
    const char* given = std::getenv("LOCKSTEP_PYTHON");
    const std::string source = SourceDir();
    const std::vector<std::string> words = {given != nullptr ? given : source + "/.venv/bin/python",
                                            source + "/tests/track/read_wandb.py", File(fragment)};
    std::FILE* pipe = ::popen(ShellQuote(words).c_str(), "r");
    std::string text;
    char buffer[4096];
    for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    EXPECT_EQ(::pclose(pipe), 0) << "needs the virtual environment (deps/venv): " << ShellQuote(words);
    json records = json::array();
    for (const json& line : ParseJsonLines(text).lines) records.push_back(line);
    return records;
  }

  static json All(const json& records, const char* kind) {
    json found = json::array();
    for (const json& record : records) {
      if (record.contains(kind)) found.push_back(record[kind]);
    }
    return found;
  }

  // {step: value} of a metric in the history.
  static std::map<std::string, std::string> History(const json& records, const std::string& metric) {
    std::map<std::string, std::string> found;
    for (const json& history : All(records, "history")) {
      std::map<std::string, std::string> items;
      for (const json& item : history["item"]) items[item["key"]] = item["value_json"];
      if (items.contains(metric)) found[items["_step"]] = items[metric];
    }
    return found;
  }

  std::optional<TempDir> dir_;
};

TEST_F(WandbTest, ARunIsReadByWandbsOwnMessages) {
  const std::string console = *dir_ / "rank-0.log";
  ASSERT_TRUE(AppendLine(console, "hello W&B, the key is hunter2hunter2").ok());
  std::unique_ptr<Metrics> metrics = Open(0, console);
  metrics->HParams({{"train.batch", 4.0},
                    {"recipe", std::string("taehv")},
                    {"reproducible", true},
                    {"train.optimizer.betas", HParamList{"[0.9,0.99]"}}});
  Steps(*metrics, 1, 3, 0.25);
  metrics->Set(metrics->Register("grad_norm"), 3, std::nan(""));
  metrics->EndStep(3);
  metrics->Image("reconstruction", 3, "png bytes", 64, 32);
  metrics->Video("reconstruction/clip", 3, "gif bytes", 8, 4);
  metrics->Histogram("weights/a", 3, {.edges = {0, 1, 2}, .counts = {5, 6}});
  ASSERT_TRUE(metrics->Finish({.exit_code = 0}).ok());
  metrics.reset();
  const json records = Read(0);
  EXPECT_TRUE(records[0].contains("header"));
  const json run = All(records, "run")[0];
  EXPECT_EQ(run["project"], "taehv");
  EXPECT_EQ(run["display_name"], "night-1");
  EXPECT_FALSE(run.contains("resumed"));
  const json config = All(records, "config")[0]["update"];
  EXPECT_EQ(config[0], json({{"key", "recipe"}, {"value_json", "\"taehv\""}}));
  EXPECT_EQ(config[2], json({{"nested_key", {"train", "batch"}}, {"value_json", "4.0"}}));
  EXPECT_EQ(config[3], json({{"nested_key", {"train", "optimizer", "betas"}}, {"value_json", "[0.9,0.99]"}}));
  EXPECT_EQ(History(records, "loss"),
            (std::map<std::string, std::string>{{"1", "0.25"}, {"2", "0.25"}, {"3", "0.25"}}));
  EXPECT_EQ(History(records, "grad_norm")["3"], "NaN");
  EXPECT_EQ(History(records, "weights/a")["3"], R"({"_type":"histogram","bins":[0.0,1.0,2.0],"values":[5.0,6.0]})");
  for (const auto& [tag, bytes] : {std::pair("reconstruction", "png bytes"), {"reconstruction/clip", "gif bytes"}}) {
    const json media = json::parse(History(records, tag)["3"]);
    EXPECT_EQ(media["size"], 9);
    const Result<std::string> file = ReadFile(WandbFragments(Dir())[0] + "/files/" + media["path"].get<std::string>());
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(*file, bytes);
  }
  EXPECT_EQ(All(records, "files").size(), 2u);
  EXPECT_EQ(All(records, "stats")[0]["item"][0]["key"], "proc.memory.rssMB");
  EXPECT_EQ(All(records, "output_raw")[0]["line"], "hello W&B, the key is ***\n");
  EXPECT_EQ(All(records, "exit")[0].value("exit_code", 0), 0);
  EXPECT_TRUE(records[records.size() - 2].contains("exit")) << "data behind an exit record are dropped by the uploader";
  EXPECT_TRUE(records.back().contains("final")) << "older uploaders send the configuration when they meet it";
  std::map<std::string, std::string> summary;
  for (const json& update : All(records, "summary")) {
    for (const json& item : update["update"]) summary[item["key"]] = item["value_json"];
  }
  EXPECT_EQ(summary["loss"], "0.25");
  EXPECT_EQ(summary["_step"], "3");
}

TEST_F(WandbTest, AnAttemptThatGoesBackRewindsTheRunAndOneThatGoesOnResumesIt) {
  struct Attempt {
    uint64_t first, last;
  };
  for (const Attempt& attempt : {Attempt{0, 9}, Attempt{5, 7}, Attempt{7, 8}, Attempt{0, 2}}) {
    std::unique_ptr<Metrics> metrics = Open(attempt.first);
    Steps(*metrics, attempt.first + 1, attempt.last, 1);
    if (attempt.first != 7) continue;  // the others are not finished: they failed
    ASSERT_TRUE(metrics->Finish({.exit_code = 75, .preempted = true}).ok());
  }
  const std::vector<std::string> folders = WandbFragments(Dir());
  ASSERT_EQ(folders.size(), 4u);
  const std::string id = File(0).substr(File(0).rfind('/'));
  EXPECT_TRUE(File(1).ends_with(id) && File(2).ends_with(id)) << "one run";
  const json rewound = All(Read(1), "run")[0];
  EXPECT_EQ(rewound["branch_point"], json({{"metric", "_step"}, {"run", rewound["run_id"]}, {"value", 5.0}}));
  const json second = Read(2), resumed = All(second, "run")[0];
  EXPECT_FALSE(resumed.contains("branch_point"));
  EXPECT_EQ(resumed["resume"], true);
  EXPECT_EQ(All(second, "preempting").size(), 1u);
  EXPECT_EQ(All(second, "exit")[0]["exit_code"], 75);
  EXPECT_EQ(All(Read(0), "exit")[0]["exit_code"], 1);
  EXPECT_FALSE(File(3).ends_with(id)) << "nothing is kept of a run that begins again: another run";
  EXPECT_FALSE(All(Read(3), "run")[0].contains("resumed"));
}

TEST_F(WandbTest, ARollbackInsideOneProcessGoesOnInTheNextFragment) {
  std::unique_ptr<Metrics> metrics = Open();
  Steps(*metrics, 1, 4, 1);
  ASSERT_TRUE(metrics->Flush().ok());
  metrics->Rewind(3);
  Steps(*metrics, 3, 3, 2);
  ASSERT_TRUE(metrics->Finish({}).ok());
  EXPECT_EQ(All(Read(1), "run")[0]["branch_point"]["value"], 2.0);
  EXPECT_EQ(History(Read(1), "loss"), (std::map<std::string, std::string>{{"3", "2"}}));
}

TEST_F(WandbTest, AfterAKillWhatWasFlushedIsThereAndTheNextAttemptEndsTheFragment) {
  int news[2];
  ASSERT_EQ(::pipe(news), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::unique_ptr<Metrics> metrics = Open();
    Steps(*metrics, 1, 500, 0.5);
    if (!metrics->Flush().ok() || ::write(news[1], "x", 1) != 1) ::_exit(1);
    for (uint64_t step = 501;; ++step) {
      Steps(*metrics, step, step, 0.5);
      ::usleep(100);
    }
  }
  char byte;
  ASSERT_EQ(::read(news[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::close(news[0]);
  ::close(news[1]);
  {  // a torn tail, as a power cut leaves it
    std::FILE* file = std::fopen(File(0).c_str(), "ab");
    std::fwrite("torn", 1, 4, file);
    std::fclose(file);
  }
  Open(400).reset();
  const json records = Read(0);
  EXPECT_GE(History(records, "loss").size(), 500u);
  EXPECT_EQ(All(records, "exit")[0]["exit_code"], 1);
  EXPECT_TRUE(records.back().contains("final"));
  EXPECT_EQ(All(Read(1), "run")[0]["branch_point"]["value"], 400.0);
}

// wandb's uploader gives a second row of a step the next number, and every later row with it.
TEST_F(WandbTest, AStepHasOneRowHoweverOftenItIsFlushedAndAlsoAfterAKill) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::unique_ptr<Metrics> metrics = Open();
    Steps(*metrics, 1, 3, 0.5);
    if (!metrics->Flush().ok()) ::_exit(1);
    metrics->Set(metrics->Register("val/loss"), 3, 0.25);
    metrics->EndStep(3);
    metrics->Image("sheet", 2, "png", 1, 1);
    ::_exit(metrics->Flush().ok() ? 0 : 1);  // without an end
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(History(Read(0), "loss").size(), 2u) << "the third row may still grow";
  std::unique_ptr<Metrics> metrics = Open(3);
  metrics->Set(metrics->Register("val/again"), 3, 0.125);
  metrics->EndStep(3);
  Steps(*metrics, 4, 5, 0.5);
  ASSERT_TRUE(metrics->Flush().ok());
  metrics->Set(metrics->Register("val/loss"), 5, 0.0625);
  metrics->EndStep(5);
  ASSERT_TRUE(metrics->Finish({}).ok());
  metrics.reset();
  using Values = std::map<std::string, std::string>;
  const json first = Read(0), second = Read(1);
  EXPECT_EQ(All(first, "history").size(), 3u);
  EXPECT_EQ(History(first, "loss"), (Values{{"1", "0.5"}, {"2", "0.5"}, {"3", "0.5"}}));
  EXPECT_EQ(History(first, "val/loss"), (Values{{"3", "0.25"}}));
  EXPECT_EQ(History(first, "sheet").begin()->first, "3");
  EXPECT_EQ(All(second, "history").size(), 2u);
  EXPECT_EQ(All(second, "run")[0]["resume"], true);
  EXPECT_EQ(History(second, "val/again"), (Values{{"4", "0.125"}})) << "step 3 has its row already";
  EXPECT_EQ(History(second, "val/loss"), (Values{{"5", "0.0625"}}));
  for (const std::string& folder : WandbFragments(Dir())) {
    EXPECT_EQ(ListDir(folder)->size(), 2u) << "the fragment and files/: no open row is left";
  }
}

TEST_F(WandbTest, AHistogramStandsAtItsStepHoweverQuicklyTheStepsFollow) {
  std::unique_ptr<Metrics> metrics = Open();
  for (uint64_t step = 1; step <= 40; ++step) {
    if (step % 4 == 0) metrics->Histogram("weights/a", step, {.edges = {0, 1, 2}, .counts = {5, 6}});
    Steps(*metrics, step, step, 0.5);
  }
  ASSERT_TRUE(metrics->Finish({}).ok());
  std::set<int> steps;
  for (const auto& [step, value] : History(Read(0), "weights/a")) steps.insert(std::stoi(step));
  EXPECT_EQ(steps, (std::set<int>{4, 8, 12, 16, 20, 24, 28, 32, 36, 40}));
}

TEST_F(WandbTest, TheWholeConsoleIsKeptAndALaterPhaseOfTheProcessDoesNotRepeatIt) {
  const std::string console = *dir_ / "rank-0.log";
  std::string log;
  for (int i = 0; i < 10'000; ++i)
    log += "a line of a log that says much in the last second: " + std::to_string(i) + "\n";
  ASSERT_TRUE(WriteFileAtomic(console, log).ok());
  std::unique_ptr<Metrics> metrics = Open(0, console);
  Steps(*metrics, 1, 1, 1);
  ASSERT_TRUE(metrics->Finish({}).ok());
  metrics = Open(1, console, /*from_now=*/true);
  ASSERT_TRUE(AppendLine(console, "phase 2").ok());
  Steps(*metrics, 2, 2, 1);
  ASSERT_TRUE(metrics->Finish({}).ok());
  EXPECT_EQ(All(Read(0), "output_raw").size(), 10'000u);
  const json second = All(Read(1), "output_raw");
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0]["line"], "phase 2\n");
}

TEST_F(WandbTest, AByteThatIsNoUtf8EndsNoUpload) {
  const std::string console = *dir_ / "rank-0.log";
  ASSERT_TRUE(AppendLine(console, std::string("unreadable sample caf\xe9\0.mp4", 27)).ok());
  std::unique_ptr<Metrics> metrics = Open(0, console);
  metrics->HParams({{"data.pa\xff", std::string("caf\xe9")}});
  metrics->Set(metrics->Register("l\xf6ss"), 1, 2);
  metrics->EndStep(1);
  ASSERT_TRUE(metrics->Finish({}).ok());
  const json records = Read(0);
  EXPECT_EQ(All(records, "output_raw")[0]["line"], "unreadable sample caf\uFFFD .mp4\n");
  EXPECT_EQ(All(records, "config")[0]["update"][0]["nested_key"], json({"data", "pa\uFFFD"}));
  EXPECT_EQ(History(records, "l\uFFFDss"), (std::map<std::string, std::string>{{"1", "2"}}));
}

TEST_F(WandbTest, AFragmentWithoutARunIsRemovedBecauseTheUploaderWouldRefuseAll) {
  const std::string folder = Dir() + "/offline-run-20260101_000000-abcd1234";
  ASSERT_TRUE(MakeDirs(folder).ok());
  ASSERT_TRUE(WriteFileAtomic(folder + "/run-abcd1234.wandb", ":W&").ok());
  Open().reset();
  ASSERT_EQ(WandbFragments(Dir()).size(), 1u);
  EXPECT_NE(WandbFragments(Dir())[0], folder);
}

TEST(WandbLog, RecordsOfEverySizeComeBackAndATornTailEndsTheFile) {
  std::string file = WandbHeader();
  std::vector<std::string> records;
  uint64_t at = file.size();
  for (const size_t size : {0u, 1u, 32747u, 3u, 32754u, 100000u, 7u, 65522u, 12u}) {
    records.emplace_back(size, static_cast<char>('a' + records.size()));
    at = FrameWandbRecord(records.back(), at, &file);
    ASSERT_EQ(at, file.size());
  }
  std::vector<std::string> found;
  const WandbScan scan = ScanWandbFile(file, [&](std::string_view record) { found.emplace_back(record); });
  EXPECT_EQ(found, records);
  EXPECT_EQ(scan.whole, file.size());
  for (const size_t cut : {1u, 5u, 18u}) {
    found.clear();
    const std::string torn = file.substr(0, file.size() - cut);
    EXPECT_LT(ScanWandbFile(torn, [&](std::string_view record) { found.emplace_back(record); }).whole, torn.size());
    EXPECT_EQ(found.size(), records.size() - 1);
  }
  EXPECT_EQ(Crc32("123456789"), 0xcbf43926u);  // the check value of the polynomial
}

TEST(WandbLive, WhatIsMissingForAnUploadIsNamed) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  Environment env = {{"PATH", dir->path()}, {"HOME", dir->path()}};
  EXPECT_NE(CanUploadToWandb(env).message().find("no program 'wandb'"), std::string::npos);
  ASSERT_TRUE(WriteFileAtomic(*dir / "wandb", "#!/bin/sh\nexit 3\n", 0755).ok());
  EXPECT_NE(CanUploadToWandb(env).message().find("no key"), std::string::npos);
  ASSERT_TRUE(WriteFileAtomic(*dir / ".netrc", "machine example.org login a password b\n").ok());
  EXPECT_FALSE(CanUploadToWandb(env).ok());
  ASSERT_TRUE(WriteFileAtomic(*dir / ".netrc", "machine api.wandb.ai\n  login user password b\n").ok());
  EXPECT_TRUE(CanUploadToWandb(env).ok());
  env["WANDB_BASE_URL"] = "https://w.example.com:8080/x";
  EXPECT_FALSE(CanUploadToWandb(env).ok());
  env["WANDB_API_KEY"] = "k";
  EXPECT_TRUE(CanUploadToWandb(env).ok());
  Result<WandbLive> live = WandbLive::Start(dir->path(), env);
  ASSERT_TRUE(live.ok()) << live.status().ToString();
  const std::string said = live->Finish(std::chrono::seconds(60), std::chrono::seconds(60), [] { return true; });
  EXPECT_NE(said.find("exit code 3"), std::string::npos) << said;
  EXPECT_NE(said.find("wandb sync"), std::string::npos) << said;
  for (const auto& [name, value] : Environment{{"WANDB_MODE", "offline"}, {"WANDB_DISABLED", "true"}}) {
    Environment forbidden = env;
    forbidden[name] = value;
    EXPECT_NE(CanUploadToWandb(forbidden).message().find(name), std::string::npos) << name;
  }
}

TEST(WandbLive, AnUploadIsNotWaitedForWhereTheEndIsInAHurry) {
  Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  ASSERT_TRUE(WriteFileAtomic(*dir / "wandb", "#!/bin/sh\nexec sleep 600\n", 0755).ok());
  const Environment env = {{"PATH", dir->path() + ":/usr/bin:/bin"}, {"WANDB_API_KEY", "k"}};
  Result<WandbLive> live = WandbLive::Start(dir->path(), env);
  ASSERT_TRUE(live.ok()) << live.status().ToString();
  const std::string said = live->Finish(std::chrono::hours(1), std::chrono::seconds(0), [] { return true; });
  EXPECT_NE(said.find("was not done after 0 s"), std::string::npos) << said;
}

}  // namespace
}  // namespace lockstep::track
