#include "track/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "track/pixels.h"

namespace lockstep::track {
namespace {

Points Falling() {
  Points points;
  for (int i = 0; i < 500; ++i)
    points.push_back({static_cast<double>(i), std::exp(-i / 100.0) + (i % 2 == 0 ? 0.02 : -0.02)});
  return points;
}

Curve WithLoss(Points points) {
  return {.title = "night-1",
          .subtitle = "taehv",
          .panels = {{.label = "loss", .series = {{.name = "training", .points = std::move(points)}}}}};
}

Picture Draw(const Curve& curve) {
  const Result<const Cairo*> cairo = LoadCairo();
  EXPECT_TRUE(cairo.ok()) << cairo.status().ToString();
  const Result<Picture> picture = DrawCurve(**cairo, curve);
  EXPECT_TRUE(picture.ok()) << picture.status().message();
  return *picture;
}

// The row in which the main line crosses a column, below title and legend; -1 where it does not.
int BlueRow(const Picture& picture, int x) {
  for (int y = 100; y < picture.height; ++y) {
    if (IsBlue(At(picture, x, y))) return y;
  }
  return -1;
}

TEST(DrawCurve, AFallingLossGoesDownAcrossThePicture) {
  const Picture picture = Draw(WithLoss(Falling()));
  ASSERT_EQ(picture.width, 1120);
  ASSERT_EQ(picture.rgb.size(), static_cast<size_t>(picture.width) * static_cast<size_t>(picture.height) * 3);
  const int left = BlueRow(picture, 140), middle = BlueRow(picture, 560), right = BlueRow(picture, 1060);
  EXPECT_GT(left, 0);
  EXPECT_LT(left, middle);
  EXPECT_LT(middle, right);
}

TEST(DrawCurve, TitleLegendAndAxesHaveInk) {
  const Picture picture = Draw(WithLoss(Falling()));
  const double height = picture.height, width = picture.width;
  EXPECT_GT(DarkPixels(picture, {24, 15, 120, 25}), 80) << "title";
  EXPECT_GT(DarkPixels(picture, {110, 74, 150, 24}), 60) << "legend";
  EXPECT_GT(DarkPixels(picture, {20, 150, 20, 150}), 20) << "label of the value axis";
  EXPECT_GT(DarkPixels(picture, {60, height - 60, width - 60, 25}), 60) << "numbers of the steps";
  Curve bare = WithLoss(Falling());
  bare.title = bare.subtitle = "";
  EXPECT_EQ(DarkPixels(Draw(bare), {24, 15, 120, 45}), 0);
}

TEST(DrawCurve, EverySeriesHasItsColourAndEveryPanelItsHeight) {
  Curve curve = WithLoss(Falling());
  const int one = Draw(curve).height;
  EXPECT_EQ(Count(Draw(curve), {0, 0, 1120, 1000}, IsOrange), 0);
  const Points few = {{0, 1}, {250, 0.5}, {499, 0.3}};
  curve.panels[0].series.push_back({.name = "validation", .points = few, .look = Look::kMarkers, .colour = kOrange});
  Picture picture = Draw(curve);
  EXPECT_GT(Count(picture, Whole(picture), IsOrange), 300);
  curve.panels.push_back({.label = "PSNR (dB)", .series = {{.name = "validation", .points = few}}, .height = 150});
  EXPECT_GT(Draw(curve).height, one + 150);
}

TEST(DrawCurve, AMarkIsAVerticalLine) {
  Curve curve = WithLoss({{0, 1}, {100, 1}});
  const auto grey = [](Rgb c) { return c[0] > 100 && c[0] < 180 && c[2] > c[0]; };
  const Box middle{590, 110, 40, 250};  // around step 50
  const int without = Count(Draw(curve), middle, grey);
  curve.marks = {{50, "attempt 1"}};
  EXPECT_GT(Count(Draw(curve), middle, grey), without + 80);
}

TEST(DrawCurve, DrawsWhateverItIsGiven) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const Points odd[] = {{},
                        {{0, 1}},
                        {{5, nan}},
                        {{0, nan}, {1, 2}, {2, inf}, {3, 1}},
                        {{0, 3}, {1, 3}, {2, 3}},
                        {{0, 1e300}, {1, -1e300}},
                        {{0, 1e-300}, {1, 2e-300}},
                        {{1e18, 1}, {1e18 + 256, 2}},
                        {{nan, 1}, {1, 2}},
                        {{7, 1}, {7, 2}},
                        {{0, 1e15}, {1, 1e15 + 0.125}},
                        {{0, 1}, {1, 0}, {2, 1e-9}, {3, 1e9}}};
  for (const Points& points : odd) {
    Curve curve = WithLoss(points);
    curve.title = std::string(3000, 'w');
    curve.panels[0].series[0].name = std::string(3000, 'n');
    EXPECT_EQ(Draw(curve).width, 1120);
  }
  EXPECT_EQ(Draw({.width = 1}).width, 320);
}

TEST(DrawCurve, OnePointIsVisible) {
  const Picture picture = Draw(WithLoss({{12, 0.5}}));
  EXPECT_GT(Count(picture, {100, 101, 1000, 300}, IsBlue), 8);
}

TEST(DrawCurve, OneWildValueDoesNotFlattenTheRest) {
  Points points = Falling();
  points[3].y = 1e6;
  const Picture picture = Draw(WithLoss(points));
  EXPECT_GT(std::abs(BlueRow(picture, 300) - BlueRow(picture, 1060)), 50);
}

TEST(DrawCurve, AHundredThousandPointsAreDrawnAsOne) {
  Points points;
  for (int i = 0; i < 100000; ++i) points.push_back({static_cast<double>(i), 2 + std::sin(i * 1e-4) + 0.1 * (i % 3)});
  points[50000].y = std::nan("");
  const Picture picture = Draw(WithLoss(points));
  EXPECT_GT(BlueRow(picture, 560), 0);
}

}  // namespace
}  // namespace lockstep::track
