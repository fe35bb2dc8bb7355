#include "track/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "track/font.h"

namespace lockstep::track {
namespace {

using Rgb = std::array<uint8_t, 3>;

Rgb At(const Picture& picture, int x, int y) {
  const size_t at = (static_cast<size_t>(y) * static_cast<size_t>(picture.width) + static_cast<size_t>(x)) * 3;
  return {picture.rgb[at], picture.rgb[at + 1], picture.rgb[at + 2]};
}

// The row in which the main line, clearly blue, crosses a column; -1 where it does not.
int BlueRow(const Picture& picture, int x) {
  for (int y = 0; y < picture.height; ++y) {
    const Rgb c = At(picture, x, y);
    if (c[2] > 150 && c[0] < 40) return y;
  }
  return -1;
}

int Count(const Picture& picture, const Rgb& colour) {
  int n = 0;
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) n += At(picture, x, y) == colour;
  }
  return n;
}

CurvePoints Falling() {
  CurvePoints points;
  for (int i = 0; i < 500; ++i) points.emplace_back(i, std::exp(-i / 100.0) + (i % 2 == 0 ? 0.02 : -0.02));
  return points;
}

TEST(DrawCurve, AFallingLossGoesDownAcrossThePicture) {
  const Picture picture = DrawCurve(Falling(), "loss");
  ASSERT_EQ(picture.width, 960);
  ASSERT_EQ(picture.height, 540);
  ASSERT_EQ(picture.rgb.size(), 960u * 540 * 3);
  const int left = BlueRow(picture, 140), middle = BlueRow(picture, 500), right = BlueRow(picture, 900);
  EXPECT_GT(left, 0);
  EXPECT_LT(left, middle);
  EXPECT_LT(middle, right);
}

TEST(DrawCurve, ASecondSeriesHasItsOwnColour) {
  const CurvePoints validation = {{0, 1}, {250, 0.5}, {499, 0.3}};
  const Rgb orange = {220, 110, 0};
  EXPECT_EQ(Count(DrawCurve(Falling(), "loss"), orange), 0);
  EXPECT_GT(Count(DrawCurve(Falling(), "loss", &validation), orange), 300);
}

TEST(DrawCurve, TitleAndNumbersAreWritten) {
  const Rgb ink = {64, 64, 64};
  const int plain = Count(DrawCurve(Falling(), ""), ink);
  EXPECT_GT(Count(DrawCurve(Falling(), "loss"), ink), plain + 50);
  EXPECT_GT(plain, 1000) << "axes and tick numbers";
}

TEST(DrawCurve, DrawsWhateverItIsGiven) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const CurvePoints odd[] = {{},
                             {{0, 1}},
                             {{5, nan}},
                             {{0, nan}, {1, 2}, {2, inf}, {3, 1}},
                             {{0, 3}, {1, 3}, {2, 3}},
                             {{0, 1e300}, {1, -1e300}},
                             {{0, 1e-300}, {1, 2e-300}},
                             {{1e18, 1}, {1e18 + 256, 2}},
                             {{nan, 1}, {1, 2}},
                             {{7, 1}, {7, 2}},
                             {{0, 1e15}, {1, 1e15 + 0.125}}};
  for (const CurvePoints& points : odd) {
    const Picture picture = DrawCurve(points, "odd");
    EXPECT_EQ(picture.rgb.size(), 960u * 540 * 3);
  }
  EXPECT_EQ(DrawCurve({.title = "small", .series = {{"", Falling()}}, .width = 1, .height = 1}).width, 160);
}

TEST(DrawCurve, OneWildValueDoesNotFlattenTheRest) {
  CurvePoints points = Falling();
  points[3].second = 1e6;
  const Picture picture = DrawCurve(points, "loss");
  EXPECT_GT(std::abs(BlueRow(picture, 300) - BlueRow(picture, 900)), 50);
}

TEST(Glyph, DigitsAndLettersAreAllDifferent) {
  std::set<std::array<uint8_t, kGlyphHeight>> seen;
  for (char c : std::string("0123456789ABCDEFGHIJKLMNPQRSTUVWXYZ.,-+/_:()%")) {
    EXPECT_TRUE(seen.insert(Glyph(c)).second) << c;
  }
  EXPECT_EQ(Glyph('q'), Glyph('Q'));
}

}  // namespace
}  // namespace lockstep::track
