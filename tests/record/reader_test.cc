#include "record/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "record/run_dir.h"

namespace lockstep::record {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ReaderTest : public testing::Test {
 protected:
  RunDir Make(const std::string& name) { return *RunDir::Create(root_, name, true); }
  void Put(const std::string& file, const std::string& text) {
    std::string path = root_ + "/" + file;
    ASSERT_TRUE(MakeDirs(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomic(path, text).ok());
  }

  TempDir dir_ = *TempDir::Create();
  std::string root_ = dir_ / "runs";
};

TEST_F(ReaderTest, ARunUnderWayIsRunningWithItsLauncher) {
  RunDir run = Make("a");
  ASSERT_TRUE(run.WriteRunJson({{"nnodes", 2}, {"world_size", 16}}).ok());
  run.AppendEvent("attempt_started", {{"attempt", 0}});
  RunSummary summary = Summarise(run.path());
  EXPECT_EQ(summary.state, RunState::kRunning);
  EXPECT_EQ(summary.nnodes, 2);
  EXPECT_EQ(summary.world, 16);
  EXPECT_EQ(summary.attempts, 1);
  EXPECT_FALSE(summary.exit_code.has_value());
  ASSERT_TRUE(summary.launcher.has_value());
  EXPECT_EQ(summary.launcher->pid, ::getpid());
}

TEST_F(ReaderTest, AnEndedRunIsWhatItsReportSays) {
  for (auto [outcome, code, state] :
       {std::tuple("succeeded", 0, RunState::kSucceeded), std::tuple("failed", 5, RunState::kFailed),
        std::tuple("stopped", 143, RunState::kStopped)}) {
    RunDir run = Make(outcome);
    ASSERT_TRUE(
        run.WriteReport(
               {{"outcome", outcome}, {"exit_code", code}, {"reason", "because"}, {"started", 100.0}, {"ended", 190.5}})
            .ok());
    run.Release();
    RunSummary summary = Summarise(run.path());
    EXPECT_EQ(summary.state, state);
    EXPECT_EQ(summary.exit_code, code);
    EXPECT_EQ(summary.reason, "because");
    EXPECT_DOUBLE_EQ(summary.duration, 90.5);
  }
}

TEST_F(ReaderTest, HowARunEndedSaysItsStateOnce) {
  struct {
    RunState state;
    const char *reason, *how;
  } const cases[] = {
      {RunState::kSucceeded, "all 4 ranks succeeded", "all 4 ranks succeeded"},
      {RunState::kSucceeded, "", "succeeded"},
      {RunState::kFailed, "rank 3 on node 1 (b) failed first: exit code 1",
       "rank 3 on node 1 (b) failed first: exit code 1"},
      {RunState::kFailed, "lost node 1 (pid 9 on b): it closed", "failed: lost node 1 (pid 9 on b): it closed"},
      {RunState::kStopped, "stopped by SIGTERM at node 0", "stopped by SIGTERM at node 0"},
      {RunState::kStopped, "max-time is over", "stopped: max-time is over"},
      {RunState::kLost, "it ended without a report: its process is gone", "without a report: its process is gone"},
  };
  for (const auto& test : cases) {
    RunSummary run;
    run.state = test.state;
    run.reason = test.reason;
    EXPECT_EQ(run.HowItEnded(), test.how);
  }
  Put("a/run.json", R"({"format": 1, "name": "a"})");
  EXPECT_EQ(Summarise(root_ + "/a").HowItEnded(), "without a report");
}

TEST_F(ReaderTest, ARunThatContinuesIsRunningAlthoughItHasAnOldReport) {
  {
    RunDir run = Make("a");
    ASSERT_TRUE(run.WriteReport({{"outcome", "succeeded"}}).ok());
  }
  RunDir again = Make("a");
  EXPECT_EQ(Summarise(again.path()).state, RunState::kRunning);
}

TEST_F(ReaderTest, ARunWithAStaleLockAndNoReportIsLost) {
  LockOwner owner = LockOwner::Self();
  owner.start_time -= 1;
  Put("a/lock", owner.ToJson().dump());
  Put("a/run.json", R"({"format": 1, "name": "a", "started": 100.0})");
  Put("a/events.jsonl", R"({"t": 160.0, "type": "attempt_started", "attempt": 2})"
                        "\n");
  RunSummary summary = Summarise(root_ + "/a");
  EXPECT_EQ(summary.state, RunState::kLost);
  EXPECT_EQ(summary.attempts, 3);
  EXPECT_THAT(summary.reason, HasSubstr("another process"));
}

TEST_F(ReaderTest, ALostRunLastedUntilItsLastSignOfLife) {
  Put("a/run.json", R"({"format": 1, "name": "a", "started": 100.0})");
  Put("a/events.jsonl", R"({"t": 160.0, "type": "x"})"
                        "\n");
  RunSummary summary = Summarise(root_ + "/a");
  EXPECT_EQ(summary.state, RunState::kLost);
  EXPECT_DOUBLE_EQ(summary.duration, 60.0);
}

TEST_F(ReaderTest, ATornReportCountsAsNone) {
  Put("a/run.json", R"({"format": 1})");
  Put("a/report.json", R"({"outcome": "succ)");
  EXPECT_FALSE(ReadReport(root_ + "/a").has_value());
  EXPECT_EQ(Summarise(root_ + "/a").state, RunState::kLost);
}

TEST_F(ReaderTest, TheTreeOfAnotherNodeSaysWhereTheRecordIs) {
  RunDir node = *RunDir::Create(root_, "a", false, 1);
  RunSummary summary = Summarise(node.path());
  EXPECT_EQ(summary.state, RunState::kNodeOnly);
  EXPECT_THAT(summary.reason, HasSubstr("node 0"));
}

TEST_F(ReaderTest, HostileContentNeverBreaksASummary) {
  for (const char* text : {"", "null", "[]", "{", "\"x\"", "{\"exit_code\": 1e300}", "{\"exit_code\": \"x\"}",
                           "{\"started\": \"x\", \"nnodes\": -5, \"world_size\": 1e18}", "\xff\xfe", "[[[[[[[[",
                           "{\"outcome\": 7, \"reason\": {}}"}) {
    Put("a/report.json", text);
    Put("a/run.json", text);
    Put("a/events.jsonl", std::string(text) + "\n" + text);
    Put("a/lock", text);
    RunSummary summary = Summarise(root_ + "/a");
    EXPECT_EQ(summary.name, "a");
    EXPECT_GE(summary.nnodes, 0) << text;
    EXPECT_FALSE(summary.ToJson().dump().empty());
  }
}

TEST_F(ReaderTest, RunsAreListedNewestFirstAndOtherFoldersAreNot) {
  Put("old/run.json", R"({"started": 100.0})");
  Put("new/run.json", R"({"started": 300.0})");
  Put("mid/run.json", R"({"started": 200.0})");
  Put("not-a-run/readme.txt", "hello");
  Put(".hidden/run.json", "{}");
  Put("file", "hello");
  std::vector<std::string> names;
  std::vector<RunSummary> runs = *ListRuns(root_);
  for (const RunSummary& run : runs) names.push_back(run.name);
  EXPECT_THAT(names, ElementsAre("new", "mid", "old"));
}

TEST_F(ReaderTest, AMissingRootHoldsNoRunsAndAFileIsAnError) {
  EXPECT_THAT(*ListRuns(root_ + "/nowhere"), IsEmpty());
  Put("file", "hello");
  EXPECT_FALSE(ListRuns(root_ + "/file").ok());
}

TEST_F(ReaderTest, ARunIsFoundByNamePrefixPathOrAsLatest) {
  Put("vrt-1/run.json", R"({"started": 100.0})");
  Put("vrt-12/run.json", R"({"started": 300.0})");
  Put("taehv/run.json", R"({"started": 200.0})");
  EXPECT_EQ(*FindRun(root_, "vrt-1"), root_ + "/vrt-1");  // a whole name wins over being a prefix
  EXPECT_EQ(*FindRun(root_, "ta"), root_ + "/taehv");
  EXPECT_EQ(*FindRun(root_, "latest"), root_ + "/vrt-12");
  EXPECT_EQ(*FindRun("elsewhere", root_ + "/taehv/"), root_ + "/taehv");
  EXPECT_EQ(*FindRun("elsewhere", root_ + "/latest"), root_ + "/vrt-12");
}

TEST_F(ReaderTest, AnAmbiguousOrUnknownRunIsAnErrorThatHelps) {
  Put("vrt-1/run.json", "{}");
  Put("vrt-2/run.json", "{}");
  EXPECT_THAT(FindRun(root_, "vrt").status().message(), HasSubstr("fits 2 runs: vrt-1, vrt-2"));
  EXPECT_THAT(FindRun(root_, "vtr-1").status().message(), HasSubstr("did you mean 'vrt-1'?"));
  EXPECT_THAT(FindRun(root_ + "/none", "x").status().message(), HasSubstr("no runs under"));
  EXPECT_THAT(FindRun(root_, "/proc").status().message(), HasSubstr("not a run directory"));
  EXPECT_EQ(FindRun(root_, "").status().code(), Code::kUsage);
}

TEST_F(ReaderTest, LogFilesAreFoundByNodeAndRankAsNumbers) {
  for (const char* file : {"node-1/rank-10.log", "node-1/rank-9.log", "node-0/rank-0.log", "node-0/rank-0.log.1",
                           "node-0/rank-0.error.json", "node-0/rank-x.log", "junk/rank-1.log"}) {
    Put(std::string("a/logs/attempt-3/") + file, "x");
  }
  std::vector<std::pair<int, int>> found;
  for (const LogFile& file : LogFiles(root_ + "/a", 3)) found.emplace_back(file.node, file.rank);
  EXPECT_THAT(found, ElementsAre(std::pair(0, 0), std::pair(1, 9), std::pair(1, 10)));
  EXPECT_THAT(LogAttempts(root_ + "/a"), ElementsAre(3));
}

TEST_F(ReaderTest, ARotatedLogIsReadOldestFirst) {
  Put("l/rank-0.log", "x");
  Put("l/rank-0.log.1", "x");
  Put("l/rank-0.log.2", "x");
  Put("l/rank-0.log.9", "left over from a longer chain");
  std::string path = root_ + "/l/rank-0.log";
  EXPECT_THAT(LogChain(path), ElementsAre(path + ".2", path + ".1", path));
}

}  // namespace
}  // namespace lockstep::record
