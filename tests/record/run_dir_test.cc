#include "record/run_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "record/reader.h"

namespace lockstep::record {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;

class RunDirTest : public testing::Test {
 protected:
  RunDir Make(const std::string& name, bool authority = true, int node = 0) {
    Result<RunDir> run = RunDir::Create(root_, name, authority, node);
    EXPECT_TRUE(run.ok()) << run.status().ToString();
    return std::move(*run);
  }
  bool Exists(const std::string& path) const { return ::access(path.c_str(), F_OK) == 0; }
  std::string Text(const std::string& path) const { return *ReadFile(path); }

  TempDir dir_ = *TempDir::Create();
  std::string root_ = dir_ / "runs";
};

TEST_F(RunDirTest, ANewRunStartsAtAttemptZeroWithItsFoldersAndALock) {
  RunDir run = Make("a");
  EXPECT_EQ(run.first_attempt(), 0);
  EXPECT_EQ(run.path(), root_ + "/a");
  EXPECT_TRUE(Exists(root_ + "/a/lock"));
  EXPECT_TRUE(Exists(root_ + "/a/metrics"));
  EXPECT_THAT(run.notices(), IsEmpty());
}

TEST_F(RunDirTest, PathsAreThoseOfTheFormat) {
  RunDir run = Make("a");
  EXPECT_EQ(run.LogPath(2, 1, 9), root_ + "/a/logs/attempt-2/node-1/rank-9.log");
  EXPECT_EQ(run.ErrorFilePath(2, 1, 9), root_ + "/a/logs/attempt-2/node-1/rank-9.error.json");
  EXPECT_EQ(run.MetricsPath(9), root_ + "/a/metrics/rank-9.jsonl");
  ASSERT_TRUE(run.MakeAttemptDirs(2, 1).ok());
  EXPECT_TRUE(Exists(root_ + "/a/logs/attempt-2/node-1"));
}

TEST_F(RunDirTest, ARelativeRootBecomesAbsoluteSoThatWorkersMayChangeFolder) {
  RunDir run = *RunDir::Create(std::filesystem::relative(root_).string(), "a", true);
  EXPECT_EQ(run.path(), std::filesystem::weakly_canonical(root_ + "/a").string());
}

TEST_F(RunDirTest, ALockedNameIsRefusedAndTheRunThatHoldsItIsUntouched) {
  RunDir run = Make("a");
  ASSERT_TRUE(run.WriteRunJson({{"nnodes", 1}}).ok());
  Result<RunDir> second = RunDir::Create(root_, "a", true);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr("run 'a'"));
  EXPECT_THAT(second.status().message(), HasSubstr("pid " + std::to_string(::getpid())));
  EXPECT_TRUE(run.TouchLock().ok());
}

TEST_F(RunDirTest, AnUnlockedNameContinuesAfterTheHighestLogFolder) {
  {
    RunDir run = Make("a");
    ASSERT_TRUE(run.MakeAttemptDirs(0, 0).ok());
    ASSERT_TRUE(run.MakeAttemptDirs(10, 0).ok());  // numbers, not text: 10 comes after 9
    ASSERT_TRUE(run.MakeAttemptDirs(9, 0).ok());
  }
  RunDir again = Make("a");
  EXPECT_EQ(again.first_attempt(), 11);
  EXPECT_THAT(again.notices(), ElementsAre(HasSubstr("continuing it with attempt 11")));
}

TEST_F(RunDirTest, AnUnlockedNameContinuesAfterTheHighestAttemptInEvents) {
  {
    RunDir run = Make("a");
    run.AppendEvent("attempt_started", {{"attempt", 4}});
    run.AppendEvent("attempt_started", {{"attempt", "x"}});
  }
  EXPECT_EQ(Make("a").first_attempt(), 5);
}

TEST_F(RunDirTest, TheReportOfAnEarlierLaunchIsMovedAside) {
  {
    RunDir run = Make("a");
    run.AppendEvent("attempt_started", {{"attempt", 0}});
    ASSERT_TRUE(run.WriteReport({{"outcome", "succeeded"}, {"exit_code", 0}}).ok());
  }
  RunDir again = Make("a");
  EXPECT_FALSE(Exists(root_ + "/a/report.json"));
  EXPECT_EQ(GetString(*ReadJsonFile(root_ + "/a/report-attempt-0.json"), "outcome"), "succeeded");
}

TEST_F(RunDirTest, RunJsonKeepsTheFirstCreationTimeOverLaunches) {
  json first;
  {
    RunDir run = Make("a");
    ASSERT_TRUE(run.WriteRunJson({{"nnodes", 2}, {"name", "lie"}}).ok());
    first = *ReadRunJson(run.path());
  }
  EXPECT_EQ(first["name"], "a");
  EXPECT_EQ(first["format"], 1);
  EXPECT_EQ(first["nnodes"], 2);
  RunDir again = Make("a");
  ASSERT_TRUE(again.WriteRunJson(json::object()).ok());
  json second = *ReadRunJson(again.path());
  EXPECT_EQ(second["created"], first["created"]);
  EXPECT_GT(second["started"].get<double>(), first["started"].get<double>());
}

TEST_F(RunDirTest, AStaleLockIsTakenOverSaidAndRecorded) {
  ASSERT_TRUE(MakeDirs(root_ + "/a").ok());
  LockOwner owner = LockOwner::Self();
  owner.start_time -= 1;
  ASSERT_TRUE(WriteFileAtomic(root_ + "/a/lock", owner.ToJson().dump()).ok());
  RunDir run = Make("a");
  EXPECT_THAT(run.notices(), ElementsAre(HasSubstr("took over the stale lock of pid")));
  JsonLines events = ReadEvents(run.path());
  ASSERT_EQ(events.lines.size(), 1u);
  EXPECT_EQ(events.lines[0]["type"], "lock_taken_over");
  EXPECT_EQ(events.lines[0]["previous"]["pid"], ::getpid());
}

TEST_F(RunDirTest, AFolderThatIsNoRunIsRefusedAndNotWrittenInto) {
  ASSERT_TRUE(MakeDirs(root_ + "/src").ok());
  ASSERT_TRUE(WriteFileAtomic(root_ + "/src/main.cc", "int main() {}").ok());
  Result<RunDir> run = RunDir::Create(root_, "src", true);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), Code::kUsage);
  EXPECT_THAT(run.status().message(), HasSubstr("main.cc"));
  EXPECT_THAT(*ListDir(root_ + "/src"), ElementsAre("main.cc"));
}

TEST_F(RunDirTest, UnusableNamesAreRefusedBeforeAnythingIsMade) {
  for (const std::string& name :
       {std::string(""), std::string("."), std::string(".."), std::string("a/b"), std::string("/"), std::string("../x"),
        std::string("-x"), std::string(" x"), std::string("x "), std::string("a\nb"), std::string("a\0b", 3),
        std::string("\x7f"), std::string("latest"), std::string(129, 'x')}) {
    Result<RunDir> run = RunDir::Create(root_, name, true);
    ASSERT_FALSE(run.ok()) << name;
    EXPECT_EQ(run.status().code(), Code::kUsage) << name;
  }
  EXPECT_FALSE(Exists(root_));
  EXPECT_TRUE(CheckRunName("TAEHV_v1.2+lr=1e-4 größer").ok());
  EXPECT_TRUE(CheckRunName(std::string(128, 'x')).ok());
}

TEST_F(RunDirTest, DefaultNamesAreUsableAndTellTheProgram) {
  EXPECT_THAT(DefaultName("/opt/x/train.py"), MatchesRegex("train-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}"));
  for (const std::string& program :
       std::vector<std::string>{"", "..", "-c", "/", "a b\n", "ü.py", ".hidden", "latest", std::string(500, 'x')}) {
    EXPECT_TRUE(CheckRunName(DefaultName(program)).ok()) << program << " -> " << DefaultName(program);
  }
}

TEST_F(RunDirTest, EventsAreOneStampedObjectALine) {
  RunDir run = Make("a");
  run.AppendEvent("rank_exited", {{"rank", 3}, {"why", "a\nb"}});
  run.AppendEvent("odd", json::array({1, 2}));
  run.AppendEvent("bytes", {{"text", "\xff"}});
  JsonLines events = ReadEvents(run.path());
  ASSERT_EQ(events.lines.size(), 3u);
  EXPECT_THAT(events.bad_lines, IsEmpty());
  EXPECT_EQ(events.lines[0]["rank"], 3);
  EXPECT_EQ(events.lines[0]["type"], "rank_exited");
  EXPECT_GT(events.lines[0]["t"].get<double>(), 1.7e9);
  EXPECT_EQ(events.lines[1]["value"], json::array({1, 2}));
}

TEST_F(RunDirTest, AnEventAfterATornLineBeginsOnItsOwn) {
  {
    Make("a").AppendEvent("one");
  }
  std::string file = root_ + "/a/events.jsonl";
  std::string whole = Text(file);
  ASSERT_TRUE(WriteFileAtomic(file, whole + "{\"t\": 12, \"ty").ok());
  Make("a").AppendEvent("two");
  JsonLines events = ReadEvents(root_ + "/a");
  ASSERT_EQ(events.lines.size(), 2u);
  EXPECT_EQ(events.lines[1]["type"], "two");
  EXPECT_THAT(events.bad_lines, ElementsAre(2u));
}

TEST_F(RunDirTest, AFullDiskCostsEventsThatAreCountedAndReported) {
  ASSERT_TRUE(MakeDirs(root_ + "/a").ok());
  ASSERT_EQ(::symlink("/dev/full", (root_ + "/a/events.jsonl").c_str()), 0);
  RunDir run = Make("a");
  run.AppendEvent("one");
  run.AppendEvent("two");
  EXPECT_EQ(run.events_lost(), 2u);
  EXPECT_THAT(run.event_error().message(), HasSubstr("ENOSPC"));
  ASSERT_TRUE(run.WriteReport({{"outcome", "failed"}, {"warnings", {"first"}}}).ok());
  json report = *ReadReport(run.path());
  ASSERT_EQ(report["warnings"].size(), 2u);
  EXPECT_THAT(report["warnings"][1].get<std::string>(), HasSubstr("2 events could not be recorded"));
}

TEST_F(RunDirTest, AWriteThatTheDiskCutsShortIsSkippedByReadersAndTheNextEventIsWhole) {
  RunDir run = Make("a");
  run.AppendEvent("one");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit tight = before;
  tight.rlim_cur = Text(root_ + "/a/events.jsonl").size() + 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  run.AppendEvent("cut");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  run.AppendEvent("two");
  JsonLines events = ReadEvents(run.path());
  EXPECT_EQ(run.events_lost(), 1u);
  ASSERT_EQ(events.lines.size(), 2u);
  EXPECT_EQ(events.lines[1]["type"], "two");
  EXPECT_THAT(events.bad_lines, ElementsAre(2u));
}

TEST_F(RunDirTest, AnotherNodeWritesItsOwnTreeAndNothingOfTheAuthority) {
  RunDir authority = Make("a");
  RunDir node = Make("a", /*authority=*/false, 3);
  node.AppendEvent("log_bytes_lost", {{"rank", 7}});
  EXPECT_THAT(Text(root_ + "/a/nodes/node-3.jsonl"), HasSubstr("log_bytes_lost"));
  EXPECT_THAT(ReadEvents(root_ + "/a").lines, IsEmpty());
  EXPECT_EQ(node.WriteReport(json::object()).code(), Code::kInternal);
  EXPECT_EQ(node.WriteRunJson(json::object()).code(), Code::kInternal);
  EXPECT_EQ(node.TouchLock().code(), Code::kInternal);
  node.Release();
  EXPECT_TRUE(Exists(root_ + "/a/lock"));
}

TEST_F(RunDirTest, ARootThatCannotBeMadeSaysWhichPartAndWhy) {
  ASSERT_TRUE(WriteFileAtomic(root_, "a file").ok());
  Result<RunDir> run = RunDir::Create(root_, "a", true);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.status().code(), Code::kEnvironment);
  EXPECT_THAT(run.status().message(), HasSubstr("'" + root_ + "': ENOTDIR"));
  Result<RunDir> proc = RunDir::Create("/proc/runs", "a", true);
  ASSERT_FALSE(proc.ok());
  EXPECT_THAT(proc.status().message(), HasSubstr("/proc/runs"));
  EXPECT_THAT(run.status().hint(), HasSubstr("--log-dir"));
  EXPECT_THAT(proc.status().hint(), HasSubstr("--log-dir"));
}

TEST_F(RunDirTest, TheEndOfTheObjectReleasesTheName) {
  {
    RunDir run = Make("a");
  }
  EXPECT_FALSE(Exists(root_ + "/a/lock"));
  RunDir again = Make("a");
  RunDir moved = std::move(again);
  EXPECT_TRUE(moved.TouchLock().ok());
  EXPECT_TRUE(Exists(root_ + "/a/lock"));
}

TEST_F(RunDirTest, ADiscardedLaunchOfANewNameLeavesNothingNotEvenTheRoot) {
  RunDir run = Make("a");
  ASSERT_TRUE(run.WriteRunJson({{"nnodes", 1}}).ok());
  ASSERT_TRUE(run.WriteConfig("run:\n").ok());
  ASSERT_TRUE(run.MakeAttemptDirs(0, 0).ok());
  ASSERT_TRUE(WriteFileAtomic(run.LogPath(0, 0, 0), "words\n").ok());
  ASSERT_TRUE(WriteFileAtomic(run.MetricsPath(0), "").ok());
  run.AppendEvent("run_started");
  EXPECT_TRUE(run.Discard(0));
  EXPECT_FALSE(Exists(root_));
  run.AppendEvent("run_ended");
  EXPECT_EQ(run.events_lost(), 0u);
}

TEST_F(RunDirTest, ADiscardedLaunchLeavesOtherRunsAlone) {
  RunDir other = Make("other");
  EXPECT_TRUE(Make("a").Discard(0));
  EXPECT_FALSE(Exists(root_ + "/a"));
  EXPECT_TRUE(Exists(other.path() + "/lock"));
}

TEST_F(RunDirTest, WhereWorkWasBegunTheRecordStays) {
  for (const char* file : {"train.yaml", "metrics/rank-0.jsonl", "checkpoints"}) {
    RunDir run = Make("a");
    ASSERT_TRUE(WriteFileAtomic(run.path() + "/" + file, "x").ok());
    EXPECT_FALSE(run.Discard(0)) << file;
    EXPECT_TRUE(Exists(run.path() + "/lock")) << file;
    run.Release();
    std::filesystem::remove_all(run.path());
  }
}

TEST_F(RunDirTest, ADiscardedLaunchOfAnOldNameLeavesItAsItWas) {
  const std::string path = root_ + "/a";
  {
    RunDir run = Make("a");
    ASSERT_TRUE(run.WriteRunJson({{"nnodes", 1}}).ok());
    ASSERT_TRUE(run.WriteConfig("run: 1\n").ok());
    ASSERT_TRUE(run.MakeAttemptDirs(0, 0).ok());
    ASSERT_TRUE(WriteFileAtomic(run.LogPath(0, 0, 0), "words\n").ok());
    ASSERT_TRUE(WriteFileAtomic(path + "/train.yaml", "steps: 3\n").ok());
    std::filesystem::create_directory(path + "/telemetry");
    ASSERT_TRUE(WriteFileAtomic(path + "/telemetry/node-0.jsonl", "{}\n").ok());
    run.AppendEvent("run_started");
    ASSERT_TRUE(run.WriteReport({{"outcome", "succeeded"}, {"exit_code", 0}}).ok());
  }
  const auto everything = [&] {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      all[entry.path().string()] = entry.is_regular_file() ? Text(entry.path().string()) : "";
    }
    return all;
  };
  const auto before = everything();
  RunDir again = Make("a");
  ASSERT_TRUE(again.WriteRunJson({{"nnodes", 7}}).ok());
  ASSERT_TRUE(again.WriteConfig("run: 2\n").ok());
  ASSERT_TRUE(again.MakeAttemptDirs(again.first_attempt(), 0).ok());
  for (const char* node : {"0", "1"}) {
    ASSERT_TRUE(WriteFileAtomic(fmt::format("{}/telemetry/node-{}.jsonl", path, node), "{}\n{}\n").ok());
  }
  again.AppendEvent("run_started");
  EXPECT_NE(everything(), before);
  EXPECT_TRUE(again.Discard(again.first_attempt()));
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(Summarise(path).state, RunState::kSucceeded);
}

TEST_F(RunDirTest, AnotherNodeDiscardsItsOwnFilesOnly) {
  RunDir first = Make("a");
  ASSERT_TRUE(first.MakeAttemptDirs(0, 0).ok());
  RunDir second = Make("a", /*authority=*/false, 1);
  ASSERT_TRUE(second.MakeAttemptDirs(0, 1).ok());
  second.AppendEvent("rank_started");
  EXPECT_TRUE(second.Discard(0));
  EXPECT_FALSE(Exists(root_ + "/a/logs/attempt-0/node-1"));
  EXPECT_FALSE(Exists(root_ + "/a/nodes"));
  EXPECT_TRUE(Exists(root_ + "/a/logs/attempt-0/node-0"));
  EXPECT_TRUE(first.Discard(0));
  EXPECT_FALSE(Exists(root_));
}

}  // namespace
}  // namespace lockstep::record
