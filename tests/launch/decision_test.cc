// How an attempt ended, as a table: what the ranks left with, what else was known, and what follows.
#include "launch/decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/exit_codes.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using Next = Decision::Next;

// One rank's end. told: it was itself told to stop before; later: the job was stopping when it ended.
struct Left {
  int code = 0, signal = 0;
  bool later = false, told = false;
  double error_time = 0;
  bool refused = false;
};

struct Case {
  const char* why;
  std::vector<Left> ranks;
  int stop_signal = 0;
  const char* lost = "";
  bool stalled = false, engine = false, progressed = false;
  End end = End::kSucceeded;
  int exit_code = 0;
  Next next = Next::kFinish;
  int first = -1;  // the rank that failed first
};

TEST(Decision, WhatTheRanksLeftWithDecides) {
  const Left done{};
  const Left saved{.code = kExitResume}, saved_later{.code = kExitResume, .later = true, .told = true};
  const Left error{.code = 1}, told{.signal = SIGTERM, .later = true, .told = true};
  const Left killed{.signal = SIGKILL, .later = true, .told = true};
  const Left told_done{.later = true, .told = true}, told_error{.code = 1, .later = true, .told = true};
  const Case cases[] = {
      {.why = "all succeeded", .ranks = {done, done}},
      {.why = "one failed, the other was stopped",
       .ranks = {error, told},
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 0},
      {.why = "the first to fail is not rank 0",
       .ranks = {told, error},
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 1},
      {.why = "of two failures the earlier error file counts",
       .ranks = {{.code = 1, .error_time = 20}, {.code = 1, .error_time = 10}},
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 1},
      {.why = "crashed by a signal of its own",
       .ranks = {{.signal = SIGSEGV}, killed},
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 0},
      {.why = "stopped by request, killed in the end",
       .ranks = {told, killed},
       .stop_signal = SIGTERM,
       .end = End::kStopped,
       .exit_code = 143},
      {.why = "leaving with 0 when told is no success",
       .ranks = {told_done, told_done},
       .stop_signal = SIGINT,
       .end = End::kStopped,
       .exit_code = 130},
      {.why = "done before the signal", .ranks = {done, done}, .stop_signal = SIGTERM},
      {.why = "saved when told",
       .ranks = {saved_later, told_done},
       .stop_signal = SIGTERM,
       .end = End::kSaved,
       .exit_code = 75},
      {.why = "an error when told is part of the stop",
       .ranks = {told_error, told_done},
       .stop_signal = SIGTERM,
       .end = End::kStopped,
       .exit_code = 143},
      {.why = "saved by its own request", .ranks = {saved, saved}, .end = End::kSaved, .exit_code = 75},
      {.why = "one could not save",
       .ranks = {saved, told_error},
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 1},
      {.why = "a failure before the request counts",
       .ranks = {error, told},
       .stop_signal = SIGTERM,
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 0},
      {.why = "a lost node is the cause",
       .ranks = {told},
       .lost = "node 1",
       .end = End::kNodeLost,
       .exit_code = 6,
       .next = Next::kJudge},
      {.why = "a node lost before the request",
       .ranks = {told},
       .stop_signal = SIGTERM,
       .lost = "node 1",
       .end = End::kNodeLost,
       .exit_code = 6,
       .next = Next::kJudge},
      {.why = "stalled",
       .ranks = {{.signal = SIGABRT, .later = true, .told = true}, told},
       .stalled = true,
       .end = End::kStalled,
       .exit_code = 7,
       .next = Next::kJudge},
      {.why = "failed while it was looked at",
       .ranks = {error, told},
       .stalled = true,
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 0},
      {.why = "the engine refuses its configuration",
       .ranks = {{.code = 2, .refused = true}},
       .engine = true,
       .end = End::kEnvironment,
       .exit_code = 2,
       .next = Next::kExplain,
       .first = 0},
      {.why = "the engine cannot read its data",
       .ranks = {{.code = 3, .refused = true}},
       .engine = true,
       .end = End::kEnvironment,
       .exit_code = 3,
       .next = Next::kExplain,
       .first = 0},
      {.why = "the same in the middle of a training",
       .ranks = {{.code = 3, .refused = true}},
       .engine = true,
       .progressed = true,
       .end = End::kFailed,
       .exit_code = 3,
       .next = Next::kExplain,
       .first = 0},
      {.why = "2 of another program is its own",
       .ranks = {{.code = 2}},
       .end = End::kFailed,
       .exit_code = 5,
       .next = Next::kJudge,
       .first = 0},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.why);
    AttemptFacts facts;
    facts.world = static_cast<int>(test.ranks.size());
    for (size_t i = 0; i < test.ranks.size(); ++i) {
      RankExit exit;
      exit.rank = static_cast<int>(i);
      exit.code = test.ranks[i].code;
      exit.signal = test.ranks[i].signal;
      exit.after_stop = test.ranks[i].later;
      exit.told = test.ranks[i].told;
      exit.error_time = test.ranks[i].error_time;
      exit.refused = test.ranks[i].refused;
      facts.exits.push_back(exit);
    }
    facts.stop_signal = test.stop_signal;
    facts.stop_why = test.stop_signal == 0 ? "" : "a signal";
    facts.lost = test.lost;
    facts.stalled = test.stalled;
    facts.engine = test.engine;
    facts.progressed = test.progressed;
    const Decision decision = DecideAttempt(facts);
    EXPECT_EQ(decision.outcome.end, test.end);
    EXPECT_EQ(decision.outcome.exit_code, test.exit_code);
    EXPECT_EQ(decision.next, test.next);
    if (test.first >= 0) {
      ASSERT_FALSE(decision.outcome.failures.empty());
      EXPECT_EQ(decision.outcome.failures.front().rank, test.first);
    }
  }
}

TEST(Decision, ANodeThatCouldNotStartItsRanksComesFirst) {
  AttemptFacts facts;
  facts.start_failure = Status(Code::kEnvironment, "no such interpreter", "install it");
  facts.lost = "node 1";
  const Decision decision = DecideAttempt(facts);
  EXPECT_EQ(decision.outcome.exit_code, kExitEnvironment);
  EXPECT_EQ(decision.outcome.hint, "install it");
  EXPECT_EQ(decision.next, Next::kFinish);
}

TEST(Decision, WhoCouldNotBeToldToStopIsNamedAndTakesThePromiseBack) {
  AttemptFacts facts;
  facts.exits.resize(1);
  facts.exits[0].code = kExitResume;
  facts.exits[0].after_stop = facts.exits[0].told = true;
  facts.world = 2;
  facts.stop_signal = SIGTERM;
  facts.stop_why = "SIGTERM";
  facts.unreached = "node 1: silent";
  const Decision decision = DecideAttempt(facts);
  EXPECT_EQ(decision.outcome.exit_code, ExitOfSignal(SIGTERM));
  EXPECT_THAT(decision.outcome.reason, HasSubstr("not seen to end: node 1: silent"));
}

}  // namespace
}  // namespace lockstep::launch
