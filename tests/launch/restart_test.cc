#include "launch/restart.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

RankExit Failure(int rank, int code, std::string tail) {
  RankExit exit;
  exit.rank = rank;
  exit.code = code;
  exit.tail = std::move(tail);
  return exit;
}

TEST(Restart, TheBudgetIsOneForTheWholeJob) {
  RestartPolicy policy(2, milliseconds(1000));
  EXPECT_TRUE(policy.Judge("a", true).restart);
  EXPECT_TRUE(policy.Judge("b", true).restart);
  const auto last = policy.Judge("c", true);
  EXPECT_FALSE(last.restart);
  EXPECT_NE(last.why.find("all 2 restarts"), std::string::npos);
}

TEST(Restart, ThePauseDoublesUpToHalfAMinute) {
  RestartPolicy policy(8, milliseconds(1000));
  const int expected[] = {1000, 2000, 4000, 8000, 16000, 30000, 30000};
  for (int pause : expected) EXPECT_EQ(policy.Judge("x", true).pause.count(), pause);
}

TEST(Restart, TheSameFailureTwiceBeforeProgressEndsIt) {
  RestartPolicy policy(5, milliseconds(1));
  EXPECT_TRUE(policy.Judge("rank 0: exit code 1: no such file", false).restart);
  const auto second = policy.Judge("rank 0: exit code 1: no such file", false);
  EXPECT_FALSE(second.restart);
  EXPECT_NE(second.why.find("same failure twice"), std::string::npos);
}

TEST(Restart, ProgressInBetweenMakesItANewStory) {
  RestartPolicy policy(5, milliseconds(1));
  EXPECT_TRUE(policy.Judge("same", false).restart);
  EXPECT_TRUE(policy.Judge("same", true).restart);
  EXPECT_TRUE(policy.Judge("same", false).restart);
  EXPECT_FALSE(policy.Judge("same", false).restart);
}

TEST(Restart, ADifferentFailureIsTriedAgain) {
  RestartPolicy policy(5, milliseconds(1));
  EXPECT_TRUE(policy.Judge("a", false).restart);
  EXPECT_TRUE(policy.Judge("b", false).restart);
}

TEST(Restart, NumbersThatChangeFromRunToRunDoNotMakeFailuresDiffer) {
  EXPECT_EQ(FailureSignature(Failure(1, 1, "x\nbind to port 29501 failed at 0x7ffdeadbeef, pid 123\n")),
            FailureSignature(Failure(1, 1, "y\nbind to port 29507 failed at 0x7ffd00000010, pid 99\n")));
  EXPECT_NE(FailureSignature(Failure(1, 1, "ValueError: a")), FailureSignature(Failure(1, 1, "ValueError: b")));
  EXPECT_NE(FailureSignature(Failure(1, 1, "same")), FailureSignature(Failure(2, 1, "same")));
  EXPECT_NE(FailureSignature(Failure(1, 1, "same")), FailureSignature(Failure(1, 2, "same")));
}

diagnose::Diagnosis Found(diagnose::Restart restart, double confidence, std::string cause = "No module named 'x'") {
  diagnose::Diagnosis diagnosis;
  diagnosis.verdict = diagnose::Verdict::kFailure;
  diagnosis.signature = "py-nomodule";
  diagnosis.cause = std::move(cause);
  diagnosis.restart = restart;
  diagnosis.confidence = confidence;
  diagnosis.node = "3";
  return diagnosis;
}

TEST(Restart, ASureErrorOfTheProgramBeforeProgressIsNotTriedAgain) {
  using diagnose::Restart;
  const struct {
    Restart restart;
    double confidence;
    bool progressed;
    bool expected;
  } rows[] = {{Restart::kNo, 0.95, false, false},      {Restart::kNo, 0.95, true, true},
              {Restart::kNo, 0.6, false, true},        {Restart::kYes, 0.95, false, true},
              {Restart::kAfterFix, 0.95, false, true}, {Restart::kUndecided, 0.95, false, true}};
  for (const auto& row : rows) {
    RestartPolicy policy(3, milliseconds(1));
    const auto diagnosis = Found(row.restart, row.confidence);
    EXPECT_EQ(policy.Judge("a", row.progressed, &diagnosis).restart, row.expected)
        << static_cast<int>(row.restart) << " " << row.confidence << " " << row.progressed;
  }
}

TEST(Restart, WhatIsNoFailureByItsLogsStopsNothing) {
  RestartPolicy policy(3, milliseconds(1));
  auto diagnosis = Found(diagnose::Restart::kNo, 0.99);
  diagnosis.verdict = diagnose::Verdict::kUnknown;
  EXPECT_TRUE(policy.Judge("a", false, &diagnosis).restart);
}

TEST(Restart, AfterProgressTheSameSureErrorIsGivenOneMoreChanceAndNoSecond) {
  RestartPolicy policy(9, milliseconds(1));
  const auto first = Found(diagnose::Restart::kNo, 0.9, "IndexError at sample 17");
  const auto other = Found(diagnose::Restart::kNo, 0.9, "KeyError: 'pixels'");
  EXPECT_TRUE(policy.Judge("a", true, &first).restart);
  EXPECT_TRUE(policy.Judge("a", true, &other).restart);
  EXPECT_TRUE(policy.Judge("a", true, &first).restart);
  const auto verdict = policy.Judge("a", true, &first);
  EXPECT_FALSE(verdict.restart);
  EXPECT_NE(verdict.why.find("second time"), std::string::npos);
}

TEST(Restart, AnAttemptThatCameFurtherThanTheLastIsWorthAnother) {
  RestartPolicy policy(5, milliseconds(1));
  auto found = Found(diagnose::Restart::kNo, 0.9);
  for (const int64_t step : {100, 250, 900}) {
    found.last_step = step;
    EXPECT_TRUE(policy.Judge("a", true, &found).restart) << step;
  }
  EXPECT_FALSE(policy.Judge("a", true, &found).restart) << "the same step again: a wall";
}

TEST(Restart, WhatNeedsAFixAndComesAtTheVerySameStepAgainIsNotTriedAThirdTime) {
  auto found = Found(diagnose::Restart::kAfterFix, 0.9);
  found.last_step = 40;
  RestartPolicy policy(5, milliseconds(1));
  EXPECT_TRUE(policy.Judge("a", true, &found).restart);
  EXPECT_FALSE(policy.Judge("a", true, &found).restart);

  RestartPolicy earlier(5, milliseconds(1));
  EXPECT_TRUE(earlier.Judge("a", true, &found).restart);
  found.last_step = 30;
  EXPECT_TRUE(earlier.Judge("a", true, &found).restart) << "at another step it may be another thing";
}

TEST(Restart, WhatRepeatsItselfAtTheVerySameStepIsTriedOnceMoreAndNotTwice) {
  const struct {
    const char* name;
    std::string signature[2], cause[2], failure[2];
    std::optional<int64_t> found[2], metrics[2];
    bool expected;
  } rows[] = {
      {"an exception", {"py-x", "py-x"}, {"boom", "boom"}, {"a", "a"}, {40, 40}, {{}, {}}, false},
      {"on another rank", {"py-x", "py-x"}, {"boom", "boom"}, {"rank 0", "rank 1"}, {40, 40}, {{}, {}}, false},
      {"no diagnosis", {"", ""}, {"", ""}, {"a", "a"}, {{}, {}}, {7, 7}, false},
      {"metric lines know better", {"py-x", "py-x"}, {"boom", "boom"}, {"a", "a"}, {40, 40}, {41, 47}, true},
      {"another step", {"py-x", "py-x"}, {"boom", "boom"}, {"a", "a"}, {40, 30}, {{}, {}}, true},
      {"no step known", {"py-x", "py-x"}, {"boom", "boom"}, {"a", "a"}, {{}, {}}, {{}, {}}, true},
      {"another error", {"py-x", "py-y"}, {"boom", "bang"}, {"a", "b"}, {40, 40}, {{}, {}}, true},
      {"killed", {"exit-sigkill", "exit-sigkill"}, {"k", "k"}, {"a", "a"}, {40, 40}, {{}, {}}, true},
      {"killed, no diagnosis", {"", ""}, {"", ""}, {"rank 0: SIGKILL", "rank 0: SIGKILL"}, {{}, {}}, {7, 7}, true},
      {"out of memory",
       {"oom-cgroup", "oom-cgroup"},
       {"k", "k"},
       {"rank 0: SIGKILL", "rank 0: SIGKILL"},
       {40, 40},
       {{}, {}},
       false},
  };
  for (const auto& row : rows) {
    RestartPolicy policy(5, milliseconds(1));
    RestartPolicy::Verdict verdict;
    for (int i = 0; i < 2; ++i) {
      auto found = Found(diagnose::Restart::kYes, 0.5, row.cause[i]);
      found.signature = row.signature[i];
      found.last_step = row.found[i];
      verdict = policy.Judge(row.failure[i], true, row.signature[i].empty() ? nullptr : &found, row.metrics[i]);
      if (i == 0) EXPECT_TRUE(verdict.restart) << row.name;
    }
    EXPECT_EQ(verdict.restart, row.expected) << row.name << ": " << verdict.why;
    if (!row.expected) EXPECT_NE(verdict.why.find("second time, again at step"), std::string::npos) << verdict.why;
  }
}

TEST(Restart, APreemptionUsesNoBudget) {
  RestartPolicy policy(1, milliseconds(1));
  auto diagnosis = Found(diagnose::Restart::kYes, 0.9);
  diagnosis.signature = "slurm-preempt";
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(policy.Judge("a", true, &diagnosis).restart);
  EXPECT_EQ(policy.used(), 0);
  EXPECT_TRUE(policy.Judge("b", true).restart);
  EXPECT_FALSE(policy.Judge("b", true).restart);
}

TEST(Restart, WithoutABudgetAPreemptionIsNotRestartedEither) {
  RestartPolicy policy(0, milliseconds(1));
  auto diagnosis = Found(diagnose::Restart::kYes, 0.9);
  diagnosis.signature = "slurm-preempt";
  EXPECT_FALSE(policy.Judge("a", true, &diagnosis).restart);
}

TEST(Restart, ANodeAtFaultIsNamed) {
  RestartPolicy policy(1, milliseconds(1));
  auto diagnosis = Found(diagnose::Restart::kYes, 0.9);
  diagnosis.exclude_node = true;
  EXPECT_NE(policy.Judge("a", true, &diagnosis).why.find("node 3"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::launch
