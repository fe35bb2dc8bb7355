#include "watch/series.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::watch {
namespace {

TEST(Series, KeepsEverythingWhileItFits) {
  Series series(8);
  for (uint64_t step = 1; step <= 8; ++step) series.Add(step, static_cast<double>(step));
  ASSERT_EQ(series.points().size(), 8u);
  EXPECT_EQ(series.points()[7].step, 8u);
  EXPECT_EQ(series.points()[7].mean(), 8);
}

TEST(Series, ABetterValueOfTheLastStepReplacesIt) {
  Series series(4);
  for (uint64_t step = 0; step < 7; ++step) {
    series.Add(step, 1000);
    series.Replace(step, static_cast<double>(step));
  }
  ASSERT_EQ(series.points().size(), 4u);
  EXPECT_EQ(series.points()[1].mean(), 2.5);
  EXPECT_EQ(series.points()[1].high, 3);
  EXPECT_EQ(series.points()[3].mean(), 6);
}

TEST(Series, AMillionStepsNeedNoMoreMemoryAndLoseNoSpike) {
  Series series(100);
  double sum = 0;
  for (uint64_t step = 0; step < 1'000'000; ++step) {
    const double value = step == 123'456 ? 1000 : 1;
    sum += value;
    series.Add(step, value);
  }
  ASSERT_LE(series.points().size(), 100u);
  ASSERT_GE(series.points().size(), 50u);
  double total = 0, high = 0;
  uint64_t count = 0;
  for (const SeriesPoint& point : series.points()) {
    total += point.sum;
    count += point.count;
    high = std::max(high, point.high);
    EXPECT_EQ(point.low, 1);
  }
  EXPECT_EQ(count, 1'000'000u);
  EXPECT_DOUBLE_EQ(total, sum);
  EXPECT_EQ(high, 1000);
}

TEST(Series, StepsThatARestartRepeatsReplaceTheOldOnes) {
  Series series;
  for (uint64_t step = 0; step < 10; ++step) series.Add(step, 1);
  for (uint64_t step = 6; step < 8; ++step) series.Add(step, 2);
  ASSERT_EQ(series.points().size(), 8u);
  EXPECT_EQ(series.points()[5].mean(), 1);
  EXPECT_EQ(series.points()[6].mean(), 2);
  EXPECT_EQ(series.points()[7].mean(), 2);
}

TEST(Series, WhatIsNoNumberIsLeftOut) {
  Series series;
  series.Add(1, std::nan(""));
  series.Add(2, INFINITY);
  EXPECT_TRUE(series.points().empty());
  series.Add(3, 5);
  EXPECT_EQ(series.points().size(), 1u);
}

}  // namespace
}  // namespace lockstep::watch
