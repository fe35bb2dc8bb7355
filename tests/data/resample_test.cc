#include "data/resample.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/json.h"
#include "data/clip_transform.h"
#include "data/random.h"
#include "data/sources.h"
#include "paths.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

std::vector<uint8_t> Resized(const Image& image, Filter filter, int width, int height, bool simd) {
  std::vector<uint8_t> planes(static_cast<size_t>(width) * height * 3);
  Resample(filter, image.width, image.height, width, height, simd)
      .Apply(image.rgb.data(), static_cast<size_t>(image.width) * 3, planes.data());
  return planes;
}

// FNV-1a sums of what Pillow gives, by make_goldens.py: equal sums are equal pictures.
TEST(ResampleTest, EveryBitIsPillows) {
  const nlohmann::json goldens = (*ReadJsonFile(SourceDir() + "/tests/data/transform_goldens.json"))["pillow"];
  ASSERT_EQ(goldens.size(), 28);
  for (const nlohmann::json& golden : goldens) {
    const auto frame = golden["frame"].get<std::vector<int>>();
    const auto target = golden["target"].get<std::vector<int>>();
    const Filter filter = golden["filter"] == "BICUBIC" ? Filter::kBicubic : Filter::kBilinear;
    for (const bool simd : {false, true}) {
      uint64_t sum = 0xCBF29CE484222325;
      for (const uint8_t byte : Resized(Pattern(frame[0], frame[1]), filter, target[0], target[1], simd)) {
        sum = (sum ^ byte) * 0x100000001B3;
      }
      EXPECT_EQ(fmt::format("{:016x}", sum), golden["fnv"].get<std::string>()) << golden << " simd " << simd;
    }
  }
}

TEST(ResampleTest, VectorsGiveTheBitsOfThePlainLoops) {
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    const auto size = [&](int most) { return static_cast<int>(random.Between(1, most)); };
    Image image{size(90), size(70), {}};
    for (int i = 0; i < image.width * image.height * 3; ++i) image.rgb.push_back(random.Chance(0.5) ? 255 : 0);
    const int width = size(60), height = size(60);
    const Filter filter = round % 2 == 0 ? Filter::kBicubic : Filter::kBilinear;
    ASSERT_EQ(Resized(image, filter, width, height, true), Resized(image, filter, width, height, false))
        << image.width << "x" << image.height << " -> " << width << "x" << height;
  }
}

TEST(ResampleTest, ACropIsResizedAsAPictureOfItsOwn) {
  const Image image = Pattern(60, 40);
  Image cut{30, 20, {}};
  for (int y = 0; y < 20; ++y) {
    const auto line = image.rgb.begin() + ((y + 5) * 60 + 7) * 3;
    cut.rgb.insert(cut.rgb.end(), line, line + 90);
  }
  std::vector<uint8_t> planes(12 * 9 * 3);
  ClipTransform({7, 5, 30, 20}, false, {}, 60, 40, 12, 9, Resize::kPillowBicubic)
      .Apply(image.rgb.data(), 180, planes.data());
  EXPECT_EQ(planes, Resized(cut, Filter::kBicubic, 12, 9, true));
  // Beyond the frame: continued by reflection, as with the other filter.
  std::vector<uint8_t> larger(8 * 3 * 3);
  Image row{3, 1, {10, 10, 10, 20, 20, 20, 30, 30, 30}};
  ClipTransform({-2, -1, 8, 3}, false, {}, 3, 1, 8, 3, Resize::kPillowBicubic).Apply(row.rgb.data(), 9, larger.data());
  EXPECT_EQ(std::vector<int>(larger.begin(), larger.begin() + 8), (std::vector<int>{30, 20, 10, 20, 30, 20, 10, 20}));
}

// Any part of a JPEG file has the pixels of the whole picture, for all ways to store colour.
TEST(JpegWindowTest, APartHasThePixelsOfTheWhole) {
  const Image image = Pattern(311, 203);
  Random random(11);
  for (const auto& [across, down, progressive] :
       {std::tuple{2, 2, false}, {2, 1, false}, {1, 1, false}, {1, 2, false}, {4, 1, false}, {2, 2, true}}) {
    const std::string jpeg = JpegOf(311, 203, JCS_RGB, image.rgb, progressive, across, down);
    const Image whole = *DecodeImageBytes(jpeg, "whole");
    for (int round = 0; round < 40; ++round) {
      Window window;
      window.width = static_cast<int>(random.Between(1, 311));
      window.height = static_cast<int>(random.Between(1, 203));
      window.x = static_cast<int>(random.Below(311 - window.width + 1));
      window.y = static_cast<int>(random.Below(203 - window.height + 1));
      const Result<Image> part = DecodeImageBytes(jpeg, "part", [&](int, int) { return window; });
      ASSERT_TRUE(part.ok()) << part.status().message();
      EXPECT_EQ(part->whole_width, 311);
      ASSERT_TRUE(part->x <= window.x && part->y <= window.y && part->x + part->width >= window.x + window.width &&
                  part->y + part->height >= window.y + window.height);
      for (int y = window.y; y < window.y + window.height; ++y) {
        const auto here = part->rgb.begin() + ((y - part->y) * part->width + window.x - part->x) * 3;
        const auto there = whole.rgb.begin() + (y * 311 + window.x) * 3;
        ASSERT_TRUE(std::equal(here, here + window.width * 3, there))
            << across << "x" << down << " row " << y << " of " << window.x << "," << window.y << " " << window.width
            << "x" << window.height;
      }
    }
    // Damage is found wherever it lies.
    const std::string cut = jpeg.substr(0, jpeg.size() / 2);
    EXPECT_FALSE(DecodeImageBytes(cut, "cut", [](int, int) { return Window{0, 0, 8, 8}; }).ok());
  }
}

TEST(JpegWindowTest, GreyAndCmykPicturesHaveTheirPartsToo) {
  const Image image = Pattern(311, 203);
  const std::vector<uint8_t> grey(image.rgb.begin(), image.rgb.begin() + 311 * 203);
  std::vector<uint8_t> cmyk(image.rgb);
  cmyk.resize(static_cast<size_t>(311) * 203 * 4, 77);
  for (const std::string& jpeg : {JpegOf(311, 203, JCS_GRAYSCALE, grey), JpegOf(311, 203, JCS_CMYK, cmyk)}) {
    const Image whole = *DecodeImageBytes(jpeg, "whole");
    const Result<Image> part = DecodeImageBytes(jpeg, "part", [](int, int) { return Window{100, 90, 120, 60}; });
    ASSERT_TRUE(part.ok()) << part.status().message();
    for (int y = 90; y < 150; ++y) {
      const auto here = part->rgb.begin() + ((y - part->y) * part->width + 100 - part->x) * 3;
      ASSERT_TRUE(std::equal(here, here + 360, whole.rgb.begin() + (y * 311 + 100) * 3)) << y;
    }
  }
}

TEST(JpegWindowTest, AReducedPictureShowsTheSame) {
  // Smooth, so that halving it does not change what it shows.
  Image image{320, 240, {}};
  for (int y = 0; y < 240; ++y) {
    for (int x = 0; x < 320; ++x)
      image.rgb.insert(image.rgb.end(), {static_cast<uint8_t>(x * 255 / 320), static_cast<uint8_t>(y), 90});
  }
  const TempDir dir = *TempDir::Create();
  const std::string jpeg = JpegOf(320, 240, JCS_RGB, image.rgb);
  ASSERT_TRUE(WriteFileAtomic(dir / "a.jpg", jpeg, 0644, Durability::kProcess).ok());
  SourceConfig config{.kind = "images", .path = dir.path(), .frames = 1, .height = 32, .width = 32};
  const auto exact = *OpenSource(config);
  config.decode = "scaled";
  const auto scaled = *OpenSource(config);
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<uint8_t> a(exact->fields()[0].bytes()), b(a.size());
    std::byte *to_a = reinterpret_cast<std::byte*>(a.data()), *to_b = reinterpret_cast<std::byte*>(b.data());
    const Draw draw{.seed = 1, .epoch = epoch, .augment = true};
    ASSERT_TRUE(exact->Read(draw, {&to_a, 1}).ok() && scaled->Read(draw, {&to_b, 1}).ok());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 12) << epoch << " " << i;
  }
  // A quarter in each direction: 320 x 240 -> the largest crop is 240, and 240 / 4 is not below 32.
  const Result<Image> small = DecodeImageBytes(jpeg, "a", [](int w, int h) { return Window{0, 0, w, h, 4}; });
  EXPECT_EQ(small->width, 80);
  EXPECT_EQ(small->height, 60);
}

TEST(JpegWindowTest, AnUnknownWayToResizeIsRefused) {
  EXPECT_NE(OpenSource({.resize = "cubic"}).status().message().find("expected one of: bilinear"), std::string::npos);
  EXPECT_FALSE(OpenSource({.decode = "fast"}).ok());
}

}  // namespace
}  // namespace lockstep::data
