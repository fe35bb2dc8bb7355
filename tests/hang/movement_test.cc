// Two looks at a job: when nobody may be blamed.
#include "hang/movement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::hang {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ProcessStacks Rank(int rank, int line, int64_t switches) {
  ThreadStack thread;
  thread.main = true;
  thread.state = 'S';
  thread.syscall = "clock_nanosleep";
  thread.switches = switches;
  thread.python = {{"train", "/home/u/train.py", line}, {"<module>", "/home/u/train.py", 90}};
  ProcessStacks process;
  process.rank = rank;
  process.pid = 100 + rank;
  process.threads = {thread};
  return process;
}

HangVerdict Blame(char state = 'S') {
  ProcessStacks process = Rank(0, 7, 1);
  process.threads[0].state = state;
  const HangVerdict verdict = JudgeHang({process}, {});
  EXPECT_THAT(verdict.odd, ElementsAre(0)) << "one look alone blames";
  return verdict;
}

TEST(Movement, StepsThatAdvanceAreHealthOfAnyStack) {
  HangVerdict verdict = Blame();
  EXPECT_THAT(verdict.advice, HasSubstr("it never ends"));
  Consider({.seconds = 2.5, .before = {{0, 41}, {1, 41}}, .after = {{0, 41}, {1, 47}}}, &verdict);
  EXPECT_TRUE(verdict.healthy);
  EXPECT_EQ(verdict.summary, "healthy: steps advance (41 -> 47) in 2.5s");
  EXPECT_THAT(verdict.odd, IsEmpty());
  EXPECT_EQ(verdict.advice, "");
  EXPECT_EQ(verdict.places.size(), 1u) << "where they stand is still shown";
}

TEST(Movement, StepsThatStandStillAreNotExcusedByStacksThatMove) {
  HangVerdict verdict = Blame();
  Consider({.seconds = 3, .before = {{0, 41}}, .after = {{0, 41}}, .stacks_moved = true}, &verdict);
  EXPECT_FALSE(verdict.healthy);
  EXPECT_THAT(verdict.odd, ElementsAre(0));
}

TEST(Movement, AStepThatUsuallyTakesLongIsWaitedFor) {
  const struct {
    double quiet, usual;
    bool healthy;
  } cases[] = {{20, 60, true}, {170, 60, true}, {190, 60, false}};
  for (const auto& c : cases) {
    HangVerdict verdict = Blame();
    Consider({.seconds = 3, .before = {{0, 4}}, .after = {{0, 4}}, .quiet = c.quiet, .usual = c.usual}, &verdict);
    EXPECT_EQ(verdict.healthy, c.healthy) << c.quiet;
  }
}

TEST(Movement, WithoutStepsRanksThatMoveAreNotBlamed) {
  HangVerdict verdict = Blame();
  Consider({.seconds = 3, .stacks_moved = true}, &verdict);
  EXPECT_TRUE(verdict.healthy);
  EXPECT_THAT(verdict.summary, HasSubstr("its steps are not recognised"));
  EXPECT_THAT(verdict.summary, HasSubstr("rank 0 sleeps at train.py:7"));
}

TEST(Movement, AStoppedRankIsNamedWhateverTheOthersDo) {
  HangVerdict verdict = Blame('T');
  Consider({.seconds = 3, .before = {{1, 4}}, .after = {{1, 5}}}, &verdict);
  EXPECT_FALSE(verdict.healthy);
  EXPECT_THAT(verdict.summary, HasSubstr("stopped"));
}

TEST(Movement, ARankMovesWhenItsStackDiffersOrItWakesUpAllTheTime) {
  const StackPrint print = PrintOf(Rank(0, 7, 100));
  EXPECT_FALSE(Moved(print, PrintOf(Rank(0, 7, 100)), 3));
  EXPECT_FALSE(Moved(print, PrintOf(Rank(0, 7, 104)), 3)) << "a wait with a time-out of a second";
  EXPECT_TRUE(Moved(print, PrintOf(Rank(0, 7, 120)), 3));
  EXPECT_TRUE(Moved(print, PrintOf(Rank(0, 8, 100)), 3));
  EXPECT_FALSE(Moved(print, PrintOf(Rank(0, 7, -1)), 3)) << "nobody could look";
}

TEST(Movement, OneRankThatStandsStillIsEnoughForDoubt) {
  const std::vector<StackPrint> before = {PrintOf(Rank(0, 7, 1)), PrintOf(Rank(1, 7, 1))};
  EXPECT_TRUE(AllMoved(before, {PrintOf(Rank(0, 8, 1)), PrintOf(Rank(1, 9, 1))}, 3));
  EXPECT_FALSE(AllMoved(before, {PrintOf(Rank(0, 8, 1)), PrintOf(Rank(1, 7, 1))}, 3));
  EXPECT_FALSE(AllMoved(before, {}, 3));
}

TEST(Movement, PrintsAndVerdictsSurviveTheWire) {
  const StackPrint print = PrintOf(Rank(3, 7, 12));
  const StackPrint again = PrintFromJson(ToJson(print));
  EXPECT_EQ(again.rank, 3);
  EXPECT_EQ(again.pid, 103);
  EXPECT_EQ(again.frames, print.frames);
  EXPECT_EQ(again.switches, 12);
  HangVerdict verdict = Blame();
  verdict.places[0].step = 5;
  EXPECT_EQ(HangVerdict::FromJson(verdict.ToJson()).Text(), verdict.Text());
  EXPECT_EQ(HangVerdict::FromJson(verdict.ToJson()).places[0].where, Where::kSleep);
  for (const char* text : {"[]", "{}", "{\"places\": 3, \"ranks\": {}}", "{\"places\": [3], \"ranks\": [\"x\"]}"}) {
    EXPECT_EQ(HangVerdict::FromJson(nlohmann::json::parse(text)).places.size(), 0u) << text;
  }
}

}  // namespace
}  // namespace lockstep::hang
