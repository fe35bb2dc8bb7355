#include "track/points.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::track {
namespace {

const double kNan = std::nan("");

Points Series(size_t count, double (*value)(double)) {
  Points points;
  for (size_t i = 0; i < count; ++i) points.push_back({static_cast<double>(i), value(static_cast<double>(i))});
  return points;
}

TEST(Percentile, IsTheNearestRankOfTheFiniteValues) {
  std::vector<float> values;
  for (int i = 200; i > 0; --i) values.push_back(static_cast<float>(i));
  EXPECT_EQ(Percentile(values, 0.5), 100);
  EXPECT_EQ(Percentile(values, 0.995), 199);
  EXPECT_EQ(Percentile(values, 0), 1);
  EXPECT_EQ(Percentile(values, 1), 200);
  EXPECT_EQ(Percentile({std::numeric_limits<float>::infinity(), 3, std::numeric_limits<float>::quiet_NaN()}, 1), 3);
  EXPECT_TRUE(std::isnan(Percentile({}, 0.5)));
}

TEST(TypicalRange, LeavesOutTheFewWildestValues) {
  Points points = Series(500, [](double i) { return 1 + std::sin(i); });
  points[7].y = 1e6;
  points[9].y = kNan;
  const ValueRange range = TypicalRange(points);
  EXPECT_GE(range.low, -0.01);
  EXPECT_LT(range.high, 4);
  EXPECT_TRUE(TypicalRange({{0, kNan}}).empty());
  EXPECT_EQ(TypicalRange({{0, 2}}).low, 2);
}

TEST(Smooth, TakesNoiseAwayAndKeepsAStraightLine) {
  const Points line = Series(1000, [](double i) { return 3 * i; });
  const Points smooth = Smooth(line, TypicalRange(line), 25);
  for (size_t i = 0; i < line.size(); ++i) {
    EXPECT_NEAR(smooth[i].y, line[i].y, 1e-6);  // also at both ends: no lag
  }
  const Points noise = Series(1000, [](double i) { return static_cast<int>(i) % 2 == 0 ? 1.0 : -1.0; });
  EXPECT_NEAR(Smooth(noise, TypicalRange(noise), 25)[500].y, 0, 0.05);
}

TEST(Smooth, KeepsGapsAndIsNotPulledByAWildValue) {
  Points points = Series(400, [](double) { return 1.0; });
  points[100].y = kNan;
  points[200].y = 1e9;
  const Points smooth = Smooth(points, TypicalRange(points), 25);
  ASSERT_EQ(smooth.size(), points.size());
  EXPECT_TRUE(std::isnan(smooth[100].y));
  EXPECT_EQ(smooth[99].y, 1);
  EXPECT_LT(smooth[200].y, 2);
}

TEST(Thin, KeepsLowestAndHighestOfEveryColumn) {
  const Points points = Series(100000, [](double i) { return std::sin(i * 0.7) * (1 + i / 1e5); });
  constexpr size_t kColumns = 500;
  const Points thin = Thin(points, kColumns);
  EXPECT_LE(thin.size(), 4 * kColumns);
  const double width = 99999.0 / kColumns;
  std::vector<ValueRange> all(kColumns), kept(kColumns);
  for (const auto& [from, to] : {std::pair(&points, &all), std::pair(&thin, &kept)}) {
    for (const Point& point : *from) {
      (*to)[std::min<size_t>(kColumns - 1, static_cast<size_t>(point.x / width))].Add(point.y);
    }
  }
  for (size_t i = 0; i < kColumns; ++i) {
    EXPECT_EQ(kept[i].low, all[i].low) << i;
    EXPECT_EQ(kept[i].high, all[i].high) << i;
  }
  for (size_t i = 1; i < thin.size(); ++i) ASSERT_GT(thin[i].x, thin[i - 1].x);
  EXPECT_EQ(thin.front(), points.front());
  EXPECT_EQ(thin.back(), points.back());
}

TEST(Thin, KeepsShortSeriesAndGaps) {
  const Points few = Series(100, [](double i) { return i; });
  EXPECT_EQ(Thin(few, 50), few);
  Points points = Series(10000, [](double i) { return i; });
  for (size_t i = 4000; i < 5000; ++i) points[i].y = kNan;
  int gaps = 0;
  for (const Point& point : Thin(points, 100)) gaps += std::isnan(point.y);
  EXPECT_EQ(gaps, 1);
  // All at one place.
  EXPECT_LE(Thin(Points(1000, Point{1, 2}), 10).size(), 4u);
}

}  // namespace
}  // namespace lockstep::track
