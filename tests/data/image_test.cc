#include "data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/random.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(ImageTest, APngReadsBackAsItWasWritten) {
  for (auto [width, height] : {std::pair{1, 1}, {3, 2}, {64, 48}, {333, 5}}) {
    const Image image = Pattern(width, height);
    Result<Image> read = DecodeImageBytes(*EncodePng(image.rgb, width, height), "x");
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->width, width);
    EXPECT_EQ(read->height, height);
    EXPECT_EQ(read->rgb, image.rgb);
  }
}

TEST(ImageTest, EncodingRefusesWhatIsNoPicture) {
  const std::vector<uint8_t> bytes(12);
  EXPECT_TRUE(EncodePng(bytes, 2, 2).ok());
  EXPECT_FALSE(EncodePng(bytes, 2, 3).ok());
  EXPECT_FALSE(EncodePng(bytes, 0, 2).ok());
  EXPECT_FALSE(EncodePng({}, -1, -1).ok());
}

std::vector<uint8_t> Rgb(const std::string& bytes) {
  Result<Image> image = DecodeImageBytes(bytes, "x");
  EXPECT_TRUE(image.ok()) << image.status().message();
  return image.ok() ? image->rgb : std::vector<uint8_t>{};
}

TEST(ImageTest, EveryKindOfPngBecomesRgb) {
  EXPECT_THAT(Rgb(PngOf(2, 1, 8, PNG_COLOR_TYPE_GRAY, 0, {7, 200})), ElementsAre(7, 7, 7, 200, 200, 200));
  EXPECT_THAT(Rgb(PngOf(2, 1, 1, PNG_COLOR_TYPE_GRAY, 0, {0x40})), ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(Rgb(PngOf(1, 1, 8, PNG_COLOR_TYPE_GRAY_ALPHA, 0, {9, 0})), ElementsAre(9, 9, 9));
  EXPECT_THAT(Rgb(PngOf(1, 1, 8, PNG_COLOR_TYPE_RGBA, 0, {1, 2, 3, 0})), ElementsAre(1, 2, 3));
  EXPECT_THAT(Rgb(PngOf(1, 1, 16, PNG_COLOR_TYPE_RGB, 0, {1, 99, 2, 99, 3, 99})), ElementsAre(1, 2, 3));
  EXPECT_THAT(Rgb(PngOf(2, 1, 2, PNG_COLOR_TYPE_PALETTE, 0, {0x10})), ElementsAre(10, 20, 30, 40, 50, 60));
  const Image image = Pattern(9, 7);
  EXPECT_EQ(Rgb(PngOf(9, 7, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_ADAM7, image.rgb)), image.rgb);
}

TEST(ImageTest, EveryKindOfJpegBecomesRgb) {
  const auto near = [](int level) { return Each(testing::AllOf(testing::Ge(level - 4), testing::Le(level + 4))); };
  EXPECT_THAT(Rgb(JpegOf(8, 8, JCS_GRAYSCALE, std::vector<uint8_t>(64, 90))), near(90));
  EXPECT_THAT(Rgb(JpegOf(17, 9, JCS_RGB, Flat(17, 9, 140).rgb)), near(140));
  EXPECT_THAT(Rgb(JpegOf(17, 9, JCS_RGB, Flat(17, 9, 140).rgb, /*progressive=*/true)), near(140));
  // libjpeg marks CMYK files as Adobe's, whose values are inverted: 255 is no ink.
  EXPECT_THAT(Rgb(JpegOf(8, 8, JCS_CMYK, std::vector<uint8_t>(256, 255))), near(255));
  std::vector<uint8_t> half_black;
  for (int i = 0; i < 64; ++i) half_black.insert(half_black.end(), {255, 255, 255, 128});
  EXPECT_THAT(Rgb(JpegOf(8, 8, JCS_CMYK, half_black)), near(128));
  const Image pattern = Pattern(40, 24);
  Image smooth = pattern;  // a ramp: JPEG keeps it within a few levels
  for (size_t i = 0; i < smooth.rgb.size(); ++i) smooth.rgb[i] = static_cast<uint8_t>(i / 3 % 40 * 6);
  const auto read = Rgb(JpegOf(40, 24, JCS_RGB, smooth.rgb));
  ASSERT_EQ(read.size(), smooth.rgb.size());
  for (size_t i = 0; i < read.size(); ++i) ASSERT_NEAR(read[i], smooth.rgb[i], 6);
}

TEST(ImageTest, SaysWhatAFileIsWhenItIsNoPicture) {
  EXPECT_THAT(DecodeImageBytes("", "a.png").status().message(), HasSubstr("'a.png' cannot be decoded: it is empty"));
  EXPECT_THAT(DecodeImageBytes("GIF89a..", "a.png").status().message(), HasSubstr("neither PNG nor JPEG"));
  EXPECT_THAT(DecodeImage("/nonexistent/x.png").status().message(), HasSubstr("/nonexistent/x.png"));
}

std::vector<std::string> Files() {
  const Image image = Pattern(33, 21);
  return {*EncodePng(image.rgb, 33, 21), PngOf(33, 21, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_ADAM7, image.rgb),
          JpegOf(33, 21, JCS_RGB, image.rgb), JpegOf(33, 21, JCS_RGB, image.rgb, /*progressive=*/true)};
}

TEST(ImageTest, NoTruncatedFileBecomesAPicture) {
  for (const std::string& file : Files()) {
    ASSERT_TRUE(DecodeImageBytes(file, "x").ok());
    // The last bytes are an end marker that carries no pixels (12 of a PNG, 2 of a JPEG).
    for (size_t size = 0; size + 12 < file.size(); ++size) {
      ASSERT_FALSE(DecodeImageBytes(file.substr(0, size), "x").ok()) << size << " of " << file.size();
    }
  }
}

TEST(ImageTest, DamagedFilesAreSurvived) {
  Random random(1);
  for (const std::string& file : Files()) {
    for (int round = 0; round < 400; ++round) {
      std::string damaged = file;
      for (uint64_t i = 0; i <= random.Below(6); ++i) {
        damaged[random.Below(damaged.size())] = static_cast<char>(random.Next());
      }
      Result<Image> image = DecodeImageBytes(damaged, "x");
      if (image.ok()) {
        EXPECT_EQ(image->rgb.size(), static_cast<size_t>(image->width) * image->height * 3);
      } else {
        EXPECT_THAT(image.status().message(), HasSubstr("'x' cannot be decoded"));
      }
    }
  }
}

TEST(ImageTest, AHeaderThatPromisesTooMuchGetsNoMemory) {
  std::string png = *EncodePng(Pattern(4, 4).rgb, 4, 4);
  // IHDR with 16000 x 16000 pixels and its right checksum: 700 MB if it were believed.
  const std::string header("IHDR\x00\x00\x3e\x80\x00\x00\x3e\x80\x08\x02\x00\x00\x00", 17);
  uint32_t crc = 0xffffffffu;
  for (unsigned char c : header) {
    crc ^= c;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1u) != 0 ? (crc >> 1) ^ 0xedb88320u : crc >> 1;
  }
  crc = ~crc;
  png.replace(12, 17, header);
  for (int i = 0; i < 4; ++i) png[29 + i] = static_cast<char>(crc >> (24 - 8 * i));
  EXPECT_THAT(DecodeImageBytes(png, "x").status().message(), HasSubstr("cannot hold 16000x16000 pixels"));
}

TEST(ImageTest, GarbageBehindASignatureIsAnError) {
  Random random(2);
  for (const std::string& start : {std::string("\x89PNG\r\n\x1a\n"), std::string("\xff\xd8\xff\xe0")}) {
    for (int round = 0; round < 300; ++round) {
      std::string file = start;
      for (uint64_t i = random.Below(200); i > 0; --i) file += static_cast<char>(random.Next());
      EXPECT_FALSE(DecodeImageBytes(file, "x").ok());
    }
  }
}

TEST(ImageTest, RowsOfAPng) {
  const Image whole = Pattern(40, 50);
  const std::string png = *EncodePng(whole.rgb, 40, 50);
  const WindowOf window = [](int width, int height) {
    EXPECT_EQ(width, 40);
    EXPECT_EQ(height, 50);
    return Window{5, 12, 9, 7};
  };
  const Result<Image> part = DecodeImageBytes(png, "a.png", window);
  ASSERT_TRUE(part.ok()) << part.status().message();
  EXPECT_EQ(part->whole_height, 50);
  ASSERT_LE(part->y, 12);
  ASSERT_GE(part->y + part->height, 19);
  for (int y = 12; y < 19; ++y) {
    for (int i = 0; i < 120; ++i) ASSERT_EQ(part->rgb[(y - part->y) * 120 + i], whole.rgb[y * 120 + i]);
  }
  // What lies below the window is not decoded, and its damage is still found.
  for (size_t at = 60; at < png.size(); at += 7) {
    std::string damaged = png;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(DecodeImageBytes(damaged, "a.png", window).ok()) << at;
  }
  for (size_t size = png.size() - 1; size > 8; size -= 11) {
    EXPECT_FALSE(DecodeImageBytes(png.substr(0, size), "a.png", window).ok()) << size;
  }
}

}  // namespace
}  // namespace lockstep::data
