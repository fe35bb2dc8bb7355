#include "launch/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;

RunOutcome Failed() {
  RankExit first;
  first.rank = 3;
  first.node = 1;
  first.host = "gpu-1";
  first.pid = 77;
  first.signal = SIGKILL;
  first.evidence = "out of memory: oom_kill 0 -> 1";
  first.tail = "one\ntwo\n";
  first.log = "runs/x/rank-3.log";
  RankExit second;
  second.rank = 4;
  second.code = 1;
  second.error_message = "ConnectionError";
  RunOutcome outcome;
  outcome.end = End::kFailed;
  outcome.exit_code = 5;
  outcome.reason = "rank 3 on node 1 (gpu-1) failed first: SIGKILL (signal 9)";
  outcome.failures = {first, second};
  outcome.attempt = 2;
  return outcome;
}

TEST(Report, NamesTheFirstFailureWithSignalEvidenceAndLastLines) {
  const Json report = ReportJson(Failed(), {});
  const Json& first = report["first_failure"];
  EXPECT_EQ(first["rank"], 3);
  EXPECT_EQ(first["attempt"], 2);
  EXPECT_TRUE(first["exit_code"].is_null());
  EXPECT_EQ(first["signal_name"], "SIGKILL");
  EXPECT_EQ(first["last_lines"], Json({"one", "two"}));
  EXPECT_EQ(report["outcome"], "failed");
  EXPECT_EQ(report["other_failures"][0]["error"], "ConnectionError");
  EXPECT_THAT(report["do"].get<std::string>(), HasSubstr("memory"));
}

TEST(Report, TheTextSaysWhatAPersonNeeds) {
  ReportContext context;
  context.duration = 61;
  const std::string text = ReportText(Failed(), context);
  for (const char* word : {"exit code 5", "rank 3", "gpu-1", "SIGKILL", "oom_kill 0 -> 1", "    two", "rank-3.log",
                           "also failed, later: rank 4 exit code 1", "do: "}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
}

TEST(Report, RanksThatHadToBeKilledAreInTheDocumentAndInTheText) {
  RunOutcome outcome;
  outcome.end = End::kStopped;
  outcome.exit_code = 143;
  EXPECT_EQ(ReportJson(outcome, {})["killed_after_grace"], Json::array());
  outcome.killed = {1, 2, 5};
  EXPECT_EQ(ReportJson(outcome, {})["killed_after_grace"], Json({1, 2, 5}));
  EXPECT_THAT(ReportText(outcome, {}), HasSubstr("were killed: ranks 1-2,5"));
}

TEST(Report, EveryEndHasOneOfTheThreeOutcomes) {
  const std::pair<End, const char*> expected[] = {{End::kSucceeded, "succeeded"}, {End::kFailed, "failed"},
                                                  {End::kNodeLost, "failed"},     {End::kStopped, "stopped"},
                                                  {End::kSaved, "stopped"},       {End::kRendezvous, "failed"},
                                                  {End::kEnvironment, "failed"},  {End::kStalled, "failed"}};
  for (const auto& [end, word] : expected) {
    RunOutcome outcome;
    outcome.end = end;
    EXPECT_EQ(ReportJson(outcome, {})["outcome"], word);
  }
}

TEST(Report, ADiagnosisTakesThePlaceOfTheGeneralAdvice) {
  RunOutcome outcome = Failed();
  outcome.diagnosis = {{"verdict", "failure"}, {"signature", "exit-sigkill"}};
  outcome.diagnosis_text = "cause: out of memory\nremedy: use less";
  outcome.hint = "use less";
  const std::string text = ReportText(outcome, {});
  EXPECT_THAT(text, HasSubstr("\n  cause: out of memory\n  remedy: use less"));
  EXPECT_EQ(text.find("do: "), std::string::npos);
  EXPECT_THAT(text, HasSubstr("    two"));
  outcome.sure = true;
  EXPECT_EQ(ReportText(outcome, {}).find("    two"), std::string::npos) << "a sure diagnosis needs no last lines";
  const Json report = ReportJson(outcome, {});
  EXPECT_EQ(report["diagnosis"]["signature"], "exit-sigkill");
  EXPECT_EQ(report["do"], "use less");
  EXPECT_TRUE(report["stall"].is_null());
}

TEST(Report, WhatWasRefusedIsSaidOnceWithItsRemedy) {
  RunOutcome outcome;
  outcome.end = End::kEnvironment;
  outcome.exit_code = 2;
  outcome.reason = "train.lrr: unknown key";
  outcome.hint = "write train.lr";
  ReportContext context;
  context.duration = 0.5;
  EXPECT_EQ(ReportText(outcome, context),
            "not started after 500ms (exit code 2): train.lrr: unknown key\n  do: write train.lr");
}

TEST(Report, AnErrorThatTheReasonOrASureDiagnosisNamesIsNotRepeated) {
  RunOutcome outcome = Failed();
  outcome.failures[0].error_message = "no finite gradient";
  EXPECT_THAT(ReportText(outcome, {}), HasSubstr("error: no finite gradient"));
  outcome.reason = "no finite gradient";
  EXPECT_EQ(ReportText(outcome, {}).find("error: "), std::string::npos);
  outcome.reason = "rank 3 failed";
  outcome.sure = true;
  outcome.diagnosis_text = "cause  no finite gradient";
  EXPECT_EQ(ReportText(outcome, {}).find("error: "), std::string::npos);
}

TEST(Report, BytesThatAreNotTextDoNotBreakIt) {
  RunOutcome outcome = Failed();
  outcome.failures[0].tail = "\xff\xfe\n";
  const Json report = ReportJson(outcome, {});
  EXPECT_NE(report.dump(-1, ' ', false, Json::error_handler_t::replace).size(), 0u);
}

}  // namespace
}  // namespace lockstep::launch
