#include "data/clip_transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "paths.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

// Made by make_goldens.py with PyTorch and colorsys. Their numbers are in double precision and ours are not: a value on
// the edge between two bytes may fall to the other side, hence 1.
json Goldens(const char* part) { return (*ReadJsonFile(SourceDir() + "/tests/data/transform_goldens.json"))[part]; }

std::vector<uint8_t> Transform(const Image& image, const Crop& crop, int width, int height, bool flip = false) {
  ClipTransform transform(crop, flip, {}, image.width, image.height, width, height);
  std::vector<uint8_t> planes(static_cast<size_t>(width) * height * 3);
  transform.Apply(image.rgb.data(), static_cast<size_t>(image.width) * 3, planes.data());
  return planes;
}

TEST(ClipTransformTest, ResizesAsPyTorchDoesWithAntialias) {
  const json goldens = Goldens("resize");
  ASSERT_EQ(goldens.size(), 5);
  for (const json& golden : goldens) {
    const auto frame = golden["frame"].get<std::vector<int>>();
    const auto box = golden["crop"].get<std::vector<int>>();
    const auto target = golden["target"].get<std::vector<int>>();
    const auto expected = golden["planes"].get<std::vector<int>>();
    const auto planes = Transform(Pattern(frame[0], frame[1]), {box[0], box[1], box[2], box[3]}, target[0], target[1]);
    ASSERT_EQ(planes.size(), expected.size());
    for (size_t i = 0; i < planes.size(); ++i) ASSERT_NEAR(planes[i], expected[i], 1) << golden["crop"] << " " << i;
  }
}

TEST(ClipTransformTest, ColoursAreThoseOfTheFormulas) {
  const json goldens = Goldens("colour");
  ASSERT_EQ(goldens.size(), 5);
  for (const json& golden : goldens) {
    const auto settings = golden["settings"].get<std::vector<double>>();
    const auto in = golden["in"].get<std::vector<std::vector<int>>>();
    const auto out = golden["out"].get<std::vector<std::vector<int>>>();
    std::vector<uint8_t> planes(in.size() * 3);
    for (size_t i = 0; i < planes.size(); ++i) planes[i] = static_cast<uint8_t>(in[i % in.size()][i / in.size()]);
    ApplyColour({settings[0], settings[1], settings[2], settings[3]}, planes.data(), in.size());
    for (size_t i = 0; i < planes.size(); ++i) {
      ASSERT_NEAR(planes[i], out[i % in.size()][i / in.size()], 1) << golden["settings"] << " " << i;
    }
  }
}

TEST(ClipTransformTest, ACropOfTheTargetsSizeIsCopied) {
  const Image image = Pattern(20, 15);
  const auto planes = Transform(image, {3, 4, 8, 6}, 8, 6);
  const auto flipped = Transform(image, {3, 4, 8, 6}, 8, 6, /*flip=*/true);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 6; ++y) {
      for (int x = 0; x < 8; ++x) {
        const uint8_t expected = image.rgb[((y + 4) * 20 + x + 3) * 3 + c];
        ASSERT_EQ(planes[(c * 6 + y) * 8 + x], expected);
        ASSERT_EQ(flipped[(c * 6 + y) * 8 + 7 - x], expected);
      }
    }
  }
}

TEST(ClipTransformTest, ASmallFrameIsContinuedByReflection) {
  Image image{3, 1, {}};
  for (uint8_t v : {10, 20, 30}) image.rgb.insert(image.rgb.end(), 3, v);
  const Crop crop = DrawCrop({}, 3, 1, 7, 3);
  EXPECT_EQ(crop.x, -2);
  const auto planes = Transform(image, crop, 7, 3);
  for (int y = 0; y < 3; ++y) {
    EXPECT_THAT(std::vector<int>(planes.begin() + y * 7, planes.begin() + y * 7 + 7),
                testing::ElementsAre(30, 20, 10, 20, 30, 20, 10));
  }
}

TEST(DrawCropTest, CentresTheLargestBoxOfTheTargetsShape) {
  struct Case {
    int frame_width, frame_height, width, height, x, y, box_width, box_height;
  };
  for (const Case& c : {Case{1280, 720, 64, 64, 280, 0, 720, 720}, Case{1600, 900, 720, 480, 125, 0, 1350, 900},
                        Case{100, 400, 50, 50, 0, 150, 100, 100}, Case{64, 64, 64, 64, 0, 0, 64, 64},
                        Case{100, 100, 48, 64, 12, 0, 75, 100}, Case{200, 20, 64, 64, 68, -22, 64, 64}}) {
    const Crop crop = DrawCrop({}, c.frame_width, c.frame_height, c.width, c.height);
    EXPECT_EQ(crop.width, c.box_width) << c.frame_width;
    EXPECT_EQ(crop.height, c.box_height);
    EXPECT_EQ(crop.x, c.x);
    EXPECT_EQ(crop.y, c.y);
  }
}

TEST(DrawCropTest, AugmentedBoxesStayInsideAndVaryInSizeAndPlace) {
  double smallest = 1;
  double largest = 0;
  bool left = false;
  bool right = false;
  for (uint64_t index = 0; index < 500; ++index) {
    const Crop crop = DrawCrop({.seed = 1, .index = index, .augment = true}, 640, 360, 96, 64);
    ASSERT_GE(crop.x, 0);
    ASSERT_GE(crop.y, 0);
    ASSERT_LE(crop.x + crop.width, 640);
    ASSERT_LE(crop.y + crop.height, 360);
    ASSERT_NEAR(crop.width * 64.0 / crop.height, 96, 0.5);
    smallest = std::min(smallest, crop.height / 360.0);
    largest = std::max(largest, crop.height / 360.0);
    left |= crop.x < 20;
    right |= crop.x + crop.width > 620;
  }
  EXPECT_NEAR(smallest, 0.8, 0.01);
  EXPECT_NEAR(largest, 1.0, 0.01);
  EXPECT_TRUE(left && right);
}

TEST(DrawCropTest, IsNeverSmallerThanTheTarget) {
  for (uint64_t index = 0; index < 100; ++index) {
    const Crop crop = DrawCrop({.index = index, .augment = true}, 70, 70, 64, 64);
    EXPECT_GE(crop.width, 64);
    EXPECT_GE(crop.height, 64);
  }
}

TEST(DrawColourTest, ComesInSevenOfTenDrawsWithinItsLimits) {
  int changed = 0;
  int flipped = 0;
  for (uint64_t index = 0; index < 2000; ++index) {
    const Draw draw{.seed = 3, .index = index, .augment = true};
    EXPECT_FALSE(DrawFlip(draw, /*wanted=*/false));
    EXPECT_TRUE(DrawColour(draw, /*wanted=*/false).none());
    const Colour colour = DrawColour(draw);
    flipped += DrawFlip(draw) ? 1 : 0;
    if (colour.none()) continue;
    ++changed;
    for (double factor : {colour.brightness, colour.contrast, colour.saturation}) EXPECT_NEAR(factor, 1, 0.1);
    EXPECT_NEAR(colour.hue, 0, 0.05);
  }
  EXPECT_NEAR(changed, 1400, 100);
  EXPECT_NEAR(flipped, 1000, 100);
  EXPECT_TRUE(DrawColour({.seed = 3}).none());
  EXPECT_FALSE(DrawFlip({.seed = 3}));
}

}  // namespace
}  // namespace lockstep::data
