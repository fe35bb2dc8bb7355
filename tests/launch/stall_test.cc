#include "launch/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using Mode = StallLimit::Mode;
using ::testing::HasSubstr;

constexpr Millis kMinute{60000};

class StallTest : public ::testing::Test {
 protected:
  void Use(StallLimit limit) {
    judge_ = std::make_unique<StallJudge>(limit);
    judge_->Begin(now_);
  }
  void Pass(Millis time) { now_ += time; }
  // Rank 0 made a step just now.
  void Step(uint64_t step) {
    RankPulse pulse;
    pulse.rank = 0;
    pulse.step = step;
    pulse.progress = pulse.output = Millis(0);
    judge_->Feed({pulse}, now_);
  }
  RankPulse Quiet(Millis progress, Millis output) const {
    RankPulse pulse;
    pulse.rank = 0;
    pulse.progress = progress;
    pulse.output = output;
    return pulse;
  }
  bool Stalled() const { return judge_->Check(now_).stalled; }

  TimePoint now_ = TimePoint{} + std::chrono::hours(100);
  std::unique_ptr<StallJudge> judge_;
};

TEST_F(StallTest, SilenceLongerThanTheLimitAfterProgressIsAStall) {
  Use({Mode::kStop, kMinute});
  Step(1);
  Pass(kMinute - Millis(1));
  EXPECT_FALSE(Stalled());
  Pass(Millis(1));
  EXPECT_TRUE(Stalled());
  EXPECT_THAT(judge_->Check(now_).why, HasSubstr("no progress for 1m"));
}

TEST_F(StallTest, EveryStepBeginsTheWaitAnew) {
  Use({Mode::kStop, kMinute});
  for (uint64_t i = 0; i < 10; ++i) {
    Step(i);
    Pass(kMinute - Millis(1));
    EXPECT_FALSE(Stalled());
  }
}

TEST_F(StallTest, BeforeTheFirstProgressThreeTimesAsLongIsGranted) {
  Use({Mode::kStop, kMinute});
  Pass(3 * kMinute - Millis(1));
  EXPECT_FALSE(Stalled());
  Pass(Millis(1));
  EXPECT_TRUE(Stalled());
  EXPECT_THAT(judge_->Check(now_).why, HasSubstr("no sign of life"));
}

TEST_F(StallTest, AProgramThatPrintsButNeverAnyProgressWeKnowIsNotStopped) {
  Use({Mode::kStop, kMinute});
  for (int i = 0; i < 60; ++i) {
    Pass(kMinute);
    judge_->Feed({Quiet(Millis(-1), Millis(0))}, now_);
    EXPECT_FALSE(Stalled());
  }
}

TEST_F(StallTest, WordsWithoutProgressBuyThreeTimesTheLimitAndNoMore) {
  Use({Mode::kStop, kMinute});
  Step(1);
  for (int i = 1; i <= 5; ++i) {
    Pass(kMinute / 2);
    judge_->Feed({Quiet(i * kMinute / 2, Millis(0))}, now_);
    EXPECT_FALSE(Stalled()) << i;
  }
  Pass(kMinute / 2);
  judge_->Feed({Quiet(3 * kMinute, Millis(0))}, now_);
  EXPECT_TRUE(Stalled());
}

TEST_F(StallTest, WhatARankWasAskedToWriteIsNoSignOfLife) {
  Use({Mode::kStop, kMinute});
  Step(1);
  Pass(kMinute);
  ASSERT_TRUE(Stalled());
  judge_->Asked(now_, now_ + Millis(10000));
  Pass(Millis(5000));
  RankPulse pulse = Quiet(kMinute + Millis(5000), Millis(2000));
  pulse.writing = true;
  judge_->Feed({pulse}, now_);
  EXPECT_TRUE(Stalled());
  Pass(Millis(6000));
  judge_->Feed({Quiet(kMinute + Millis(11000), Millis(0))}, now_);  // after it: its own words
  EXPECT_FALSE(Stalled());
}

TEST_F(StallTest, WritingACheckpointIsNoStallHoweverLongItTakes) {
  Use({Mode::kStop, kMinute});
  Step(1);
  for (int i = 1; i <= 30; ++i) {
    Pass(kMinute / 2);
    RankPulse pulse = Quiet(i * kMinute / 2, i * kMinute / 2);
    pulse.writing = true;
    judge_->Feed({pulse}, now_);
    EXPECT_FALSE(Stalled());
  }
  Pass(kMinute);
  judge_->Feed({Quiet(16 * kMinute, 16 * kMinute)}, now_);
  EXPECT_TRUE(Stalled());
}

TEST_F(StallTest, AnEvaluationIsGrantedThreeTimesTheLimit) {
  Use({Mode::kStop, kMinute});
  Step(1);
  Pass(2 * kMinute);
  RankPulse pulse = Quiet(2 * kMinute, 2 * kMinute);
  pulse.evaluating = true;
  judge_->Feed({pulse}, now_);
  EXPECT_FALSE(Stalled());
  pulse.evaluating = false;
  judge_->Feed({pulse}, now_);
  EXPECT_TRUE(Stalled());
}

TEST_F(StallTest, OneRankThatMovesIsEnough) {
  Use({Mode::kStop, kMinute});
  Step(1);
  Pass(2 * kMinute);
  RankPulse other = Quiet(Millis(0), Millis(0));
  other.rank = 1;
  judge_->Feed({Quiet(2 * kMinute, 2 * kMinute), other}, now_);
  EXPECT_FALSE(Stalled());
}

TEST_F(StallTest, AutoLearnsItsLimitFromTheSteps) {
  Use({Mode::kWarn, Millis(0)});
  for (uint64_t i = 0; i < 200; ++i) {
    Step(i);
    Pass(5 * kMinute);
  }
  Step(200);
  Pass(15 * kMinute - Millis(1));
  EXPECT_FALSE(Stalled());
  Pass(Millis(1));
  EXPECT_TRUE(Stalled());
}

TEST_F(StallTest, AutoIsNeverShorterThanTenMinutes) {
  Use({Mode::kWarn, Millis(0)});
  for (uint64_t i = 0; i < 50; ++i) {
    Step(i);
    Pass(Millis(100));
  }
  Pass(9 * kMinute);
  EXPECT_FALSE(Stalled());
  Pass(kMinute);
  EXPECT_TRUE(Stalled());
}

TEST_F(StallTest, OffIsOff) {
  Use({Mode::kOff, Millis(0)});
  Pass(1000 * kMinute);
  EXPECT_FALSE(Stalled());
  EXPECT_EQ(StallJudge::PulseInterval({Mode::kOff, Millis(0)}), Millis(0));
}

TEST_F(StallTest, ANewAttemptBeginsWithoutProgress) {
  Use({Mode::kStop, kMinute});
  Step(5);
  Pass(kMinute / 2);
  judge_->Begin(now_);
  Pass(2 * kMinute);
  EXPECT_FALSE(Stalled());
  EXPECT_TRUE(judge_->steps().empty());
}

}  // namespace
}  // namespace lockstep::launch
