// How the end of a job of one node is told: a real coordinator and a local agent of a few lines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

#include "base/exit_codes.h"
#include "launch/coordinator.h"
#include "launch/report.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

class CoordinatorEnd : public ::testing::Test {
 protected:
  // The agent answers "go" with `messages`.
  RunOutcome Run(int nproc, const std::vector<Json>& messages, CoordinatorOptions options = {}) {
    Loop loop;
    Participant self;
    self.index = 0;
    self.count = 1;
    self.nproc = nproc;
    self.host = "host-0";
    std::optional<RunOutcome> outcome;
    said_.clear();
    options.backoff = Millis(1);
    Coordinator coordinator(loop, options, self,
                            {[&](const std::string& text) { said_ += text + "\n"; }, [](const std::string&) {},
                             [&](const char* type, const Json& fields) { events_[type] = fields; },
                             [&](const RunOutcome& end) {
                               outcome = end;
                               loop.Quit();
                             },
                             [](const Json&, const auto&) { return std::string(); }});
    coordinator.Start([&](const Json& message) {
      if (TypeOf(message) != "go") return;
      for (const Json& answer : messages) coordinator.FromLocalAgent(answer);
    });
    loop.After(Millis(30000), [&] { loop.Quit(); });
    if (!outcome) loop.Run();
    EXPECT_TRUE(outcome.has_value()) << said_;
    return outcome.value_or(RunOutcome());
  }

  static Json Exit(int rank, int code) {
    RankEnd end;
    end.rank = rank;
    end.code = code;
    return ToJson(message::Exit{end});
  }
  static Json Stopped(std::vector<message::RankDetail> details = {}, std::vector<message::LeftProcess> left = {}) {
    return ToJson(message::Stopped{std::move(details), "", std::move(left)});
  }

  std::string said_;
  std::map<std::string, Json> events_;
};

TEST_F(CoordinatorEnd, OneRankHasNoOthers) {
  EXPECT_EQ(Run(1, {Exit(0, 0), Stopped()}).reason, "rank 0 succeeded");
  EXPECT_EQ(said_, "");
  const RunOutcome failed = Run(1, {Exit(0, 7), Stopped()});
  EXPECT_EQ(failed.reason, "rank 0 on node 0 (host-0) failed: exit code 7");
  EXPECT_EQ(said_, "") << "the summary says it";
  EXPECT_TRUE(failed.started);
  EXPECT_EQ(Run(3, {Exit(0, 7), Stopped()}).reason, "rank 0 on node 0 (host-0) failed first: exit code 7");
  EXPECT_THAT(said_, HasSubstr("stopping the other ranks"));
}

TEST_F(CoordinatorEnd, WhatTheEngineRefusesNeverStartedAndKeepsItsRemedy) {
  message::RankDetail said;
  said.findings.error_message = "train.lrr: unknown key";
  said.findings.error_hint = "write train.lr";
  said.findings.refused = true;
  CoordinatorOptions options;
  options.engine = true;
  options.max_restarts = 3;
  const std::vector<Json> refusal = {ToJson(message::Started{}), Exit(0, 2), Exit(1, 2), Stopped({said})};
  const RunOutcome outcome = Run(2, refusal, options);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.reason, "train.lrr: unknown key");
  EXPECT_EQ(outcome.hint, "write train.lr");
  EXPECT_FALSE(outcome.started);
  EXPECT_EQ(said_, "") << "the summary says it";

  said.findings.refused = false;  // code 2 in the middle of a training
  const RunOutcome later = Run(2, {ToJson(message::Started{}), Exit(0, 2), Exit(1, 2), Stopped({said})}, options);
  EXPECT_TRUE(later.started);
  EXPECT_EQ(later.end, End::kFailed);
}

TEST_F(CoordinatorEnd, TheRemedyOfTheEngineIsTheRemedyOfTheReport) {
  message::RankDetail said;
  said.findings.error_message = "step 7: no finite gradient";
  said.findings.error_hint = "lower train.lr";
  CoordinatorOptions options;
  options.engine = true;
  options.diagnose = [](const auto&, const auto&) {
    diagnose::Diagnosis found;
    found.verdict = diagnose::Verdict::kFailure;
    found.signature = "exit-code";
    found.cause = "rank 0 ended with exit code 5";
    found.remedy = "its last lines say why";
    found.rank = 0;
    return Result<diagnose::Diagnosis>(found);
  };
  const RunOutcome outcome = Run(2, {Exit(0, kExitRankFailed), Exit(1, kExitRankFailed), Stopped({said})}, options);
  EXPECT_EQ(outcome.end, End::kFailed);
  EXPECT_EQ(outcome.exit_code, kExitRankFailed);
  const Json report = ReportJson(outcome, {});
  EXPECT_EQ(report["do"], "lower train.lr");
  EXPECT_EQ(report["diagnosis"]["remedy"], "lower train.lr");
  EXPECT_EQ(report["first_failure"]["error"], "step 7: no finite gradient");
  EXPECT_EQ(report["first_failure"]["traceback"], nullptr);
  EXPECT_THAT(ReportText(outcome, {}), HasSubstr("do            lower train.lr"));
}

TEST_F(CoordinatorEnd, EveryEndHasItsRow) {
  const std::tuple<End, const char*, const char*, int> cases[] = {
      {End::kSucceeded, "succeeded", "succeeded", 0},       {End::kFailed, "failed", "failed", 5},
      {End::kNodeLost, "node_lost", "failed", 6},           {End::kStalled, "stalled", "failed", 7},
      {End::kStopped, "stopped", "stopped", 143},           {End::kSaved, "saved", "stopped", 75},
      {End::kRendezvous, "rendezvous_failed", "failed", 4}, {End::kEnvironment, "not_started", "failed", 3},
  };
  for (const auto& [end, name, outcome, code] : cases) {
    EXPECT_EQ(RowOf(end).end, end);
    EXPECT_STREQ(RowOf(end).name, name);
    EXPECT_STREQ(RowOf(end).outcome, outcome);
    EXPECT_EQ(RunOutcome(end).exit_code, code);
  }
  EXPECT_EQ(RunOutcome::StoppedBy(SIGINT, "x").exit_code, 130);
}

TEST_F(CoordinatorEnd, TheHeadlineNamesTheRankOfTheDiagnosis) {
  CoordinatorOptions options;
  // Shared: a first search, which only warms up, runs on a thread that nobody waits for.
  const auto rank = std::make_shared<std::atomic<int>>(1);
  options.diagnose = [rank](const auto&, const auto&) {
    diagnose::Diagnosis found;
    found.verdict = diagnose::Verdict::kFailure;
    found.cause = "bad shape";
    found.rank = *rank;
    return Result<diagnose::Diagnosis>(found);
  };
  const std::vector<Json> both = {Exit(0, 7), Exit(1, 8), Stopped()};
  const RunOutcome outcome = Run(3, both, options);
  EXPECT_EQ(outcome.reason, "rank 1 on node 0 (host-0) failed first: exit code 8");
  EXPECT_EQ(outcome.failures.front().rank, 1);
  *rank = 2;  // it was stopped, and has not failed
  EXPECT_EQ(Run(3, both, options).reason, "rank 0 on node 0 (host-0) failed first: exit code 7; it began at rank 2");
}

TEST_F(CoordinatorEnd, AJobWithoutAPortNeverStarted) {
  CoordinatorOptions options;
  options.pick_port = []() -> Result<int> { return Status(Code::kRendezvous, "no free port"); };
  EXPECT_FALSE(Run(2, {}, options).started);
}

TEST_F(CoordinatorEnd, ProcessesThatOutliveASuccessfulRankAreNamed) {
  const std::vector<message::LeftProcess> left = {{0, 70, "sleep 99"}, {1, 71, "wandb"}, {1, 72, "board\n"}};
  EXPECT_EQ(Run(2, {Exit(0, 0), Exit(1, 0), Stopped({}, left)}).exit_code, 0);
  EXPECT_THAT(said_, HasSubstr("rank 0 succeeded and left 1 process running, which was ended: sleep 99 (pid 70)\n"));
  EXPECT_THAT(said_, HasSubstr("rank 1 succeeded and left 2 processes running, which were ended: wandb (pid 71), "
                               "board\\n (pid 72)\n"));
  EXPECT_EQ(events_["left_running"]["processes"].size(), 3u);
}

}  // namespace
}  // namespace lockstep::launch
