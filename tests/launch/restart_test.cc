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

}  // namespace
}  // namespace lockstep::launch
