#include "track/sheet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "track/colour_map.h"
#include "track/pixels.h"

namespace lockstep::track {
namespace {

constexpr Rgb kSky = {40, 120, 220};

Picture Plain(int width, int height, Rgb colour) {
  Picture picture{width, height, {}};
  for (int i = 0; i < width * height; ++i) picture.rgb.insert(picture.rgb.end(), colour.begin(), colour.end());
  return picture;
}

NumberMap Numbers(std::vector<float> values) { return {static_cast<int>(values.size()), 1, std::move(values)}; }

// Input, output and error of `frames` frames, for each of the rows.
Sheet Clips(size_t rows, size_t frames, int width, int height) {
  Sheet sheet{.title = "night-1",
              .subtitle = "taehv, step 200",
              .columns = {"input", "reconstruction", "error"},
              .map_label = kAbsoluteError};
  const Picture in = Plain(width, height, kSky), out = Plain(width, height, {60, 120, 220});
  for (size_t i = 0; i < rows; ++i) {
    SheetRow row{.title = "clip 7", .detail = "frames 0 and 11", .score = "PSNR 31.20 dB"};
    row.cells = {std::vector<Tile>(frames, in), std::vector<Tile>(frames, out),
                 std::vector<Tile>(frames, AbsoluteError(in, out))};
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

Picture Draw(const Sheet& sheet) {
  const Result<const Cairo*> cairo = LoadCairo();
  EXPECT_TRUE(cairo.ok()) << cairo.status().ToString();
  const Result<Picture> picture = DrawSheet(**cairo, sheet);
  EXPECT_TRUE(picture.ok()) << picture.status().message();
  return *picture;
}

int Sky(const Picture& picture) {
  return Count(picture, Whole(picture), [](Rgb c) { return c == kSky; });
}

TEST(DrawSheet, SmallTilesAreEnlargedByAWholeFactor) {
  const struct {
    size_t frames;
    int side, shown;
  } cases[] = {{2, 64, 128}, {1, 64, 256}, {2, 16, 176}, {1, 200, 200}, {2, 128, 128}};
  for (const auto& c : cases) {
    const Picture picture = Draw(Clips(3, c.frames, c.side, c.side));
    EXPECT_EQ(Sky(picture), static_cast<int>(3 * c.frames) * c.shown * c.shown) << c.frames << " of " << c.side;
    EXPECT_LE(picture.width, 1200);
  }
}

TEST(DrawSheet, LargeTilesAreReduced) {
  const Picture picture = Draw(Clips(1, 2, 720, 480));
  EXPECT_NEAR(Sky(picture), 2 * 240 * 160, 2 * 240 * 160 / 20);
}

TEST(DrawSheet, HeaderHeadingsRowsAndScaleHaveInk) {
  const Sheet sheet = Clips(2, 2, 64, 64);
  const Picture picture = Draw(sheet);
  const double width = picture.width, height = picture.height;
  EXPECT_GT(DarkPixels(picture, {24, 15, 120, 25}), 80) << "title";
  EXPECT_GT(DarkPixels(picture, {24, 80, 100, 20}), 20) << "heading of the first column";
  EXPECT_GT(DarkPixels(picture, {304, 80, 120, 20}), 40) << "heading of the second column";
  EXPECT_GT(DarkPixels(picture, {24, 104, 60, 20}), 20) << "title of the first row";
  EXPECT_GT(DarkPixels(picture, {width - 150, 104, 130, 20}), 40) << "score of the first row";
  EXPECT_GT(DarkPixels(picture, {width - 300, height - 40, 280, 40}), 40) << "what the numbers are";
  Sheet bare = sheet;
  bare.title = bare.subtitle = "";
  bare.columns = {};
  for (SheetRow& row : bare.rows) row.title = row.detail = row.score = "";
  EXPECT_EQ(DarkPixels(Draw(bare), {0, 0, width, 124}), 0);
}

TEST(DrawSheet, ScalesNumbersOverAllMaps) {
  // A map that is half at zero and half at the end of the scale, and a value far beyond both.
  Sheet sheet = Clips(1, 1, 2, 1);
  std::vector<float> values(1000, 0.0f);
  for (size_t i = 500; i < 1000; ++i) values[i] = 30;
  values[3] = 250;
  sheet.rows[0].cells = {{Numbers(values)}};
  EXPECT_EQ(MapScale(sheet), 30);
  sheet.rows[0].cells = {{Numbers({0, 0, 0})}};
  EXPECT_EQ(MapScale(sheet), 1);
  sheet.rows[0].cells = {{Numbers({std::numeric_limits<float>::quiet_NaN()})}};
  EXPECT_EQ(MapScale(sheet), 1);
  for (const auto& [value, scale] : {std::pair(0.013f, 0.015), std::pair(7.0f, 8.0), std::pair(81.0f, 100.0)}) {
    sheet.rows[0].cells = {{Numbers({value})}};
    EXPECT_NEAR(MapScale(sheet), scale, scale * 1e-6);
  }
}

TEST(DrawSheet, ASheetOfOddRowsIsDrawn) {
  Sheet sheet = Clips(1, 1, 8, 8);
  sheet.rows.push_back({});  // no tile at all
  sheet.rows.push_back({.title = std::string(3000, 'x'),
                        .detail = std::string(3000, 'y'),
                        .score = std::string(3000, 'z'),
                        .cells = {{Plain(30, 2, kSky)}}});  // another size, one column
  sheet.rows.push_back(
      {.cells = {{Picture{}}, {NumberMap{}}, {}, {Plain(8, 8, kSky)}}});  // empty tiles, a column too many
  EXPECT_GE(Draw(sheet).width, 560);
  EXPECT_GE(Draw({}).width, 560);
}

TEST(DrawSheet, MoreRowsThanFitAreLeftOutAndSaid) {
  const Picture picture = Draw(Clips(300, 1, 64, 64));
  EXPECT_LE(picture.height, 16000);
  EXPECT_GT(picture.height, 15000);
  EXPECT_GT(DarkPixels(picture, {24, static_cast<double>(picture.height) - 30, 150, 30}), 40);
  EXPECT_EQ(Sky(picture) % (256 * 256), 0);
}

TEST(AbsoluteError, IsTheMeanOverChannelsInLevels) {
  const NumberMap map = AbsoluteError(Plain(2, 2, {10, 20, 30}), Plain(2, 2, {13, 14, 30}));
  EXPECT_EQ(map.values, (std::vector<float>(4, 3)));
  EXPECT_TRUE(std::isnan(AbsoluteError(Plain(2, 2, kSky), Plain(1, 2, kSky)).values[0]));
}

// Entries of matplotlib's table, which has 256.
TEST(MagmaColour, IsMatplotlibs) {
  const struct {
    int entry;
    Rgb rgb;
  } cases[] = {
      {0, {0, 0, 4}}, {64, {81, 18, 124}}, {128, {183, 55, 121}}, {192, {252, 137, 97}}, {255, {252, 253, 191}}};
  for (const auto& c : cases) {
    const Colour colour = MagmaColour(c.entry / 255.0);
    EXPECT_NEAR(colour.red * 255, c.rgb[0], 2) << c.entry;
    EXPECT_NEAR(colour.green * 255, c.rgb[1], 2) << c.entry;
    EXPECT_NEAR(colour.blue * 255, c.rgb[2], 2) << c.entry;
  }
}

TEST(Coloured, NotANumberIsGreyAndWhatIsBeyondTheScaleIsItsEnd) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Picture picture = Coloured(Numbers({nan, inf, 50, 20, 0}), 20);
  EXPECT_EQ(At(picture, 0, 0), At(picture, 1, 0));
  EXPECT_EQ(At(picture, 0, 0)[0], At(picture, 0, 0)[2]);
  EXPECT_EQ(At(picture, 2, 0), At(picture, 3, 0));
  EXPECT_EQ(At(picture, 4, 0), (Rgb{0, 0, 4}));
}

}  // namespace
}  // namespace lockstep::track
