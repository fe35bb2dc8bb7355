// Our conversion to RGB against FFmpeg's, on frames of noise: every bit.
#include "data/yuv_to_rgb.h"

#include <gtest/gtest.h>

#include "data/random.h"

#ifdef LOCKSTEP_FFMPEG
#include "data/ffmpeg.h"

namespace lockstep::data {
namespace {

struct NoiseFrame {
  NoiseFrame(int w, int h) : width(w), height(h), strides{w + 48, w / 2 + 16, w / 2 + 16} {
    Random random(static_cast<uint64_t>(w * 1000 + h));
    for (size_t p = 0; p < 3; ++p) {
      planes[p].resize(static_cast<size_t>(strides[p] * (p == 0 ? h : h / 2)));
      // Noise, with the largest and smallest values often: sums that are cut, and those that wrap around.
      for (uint8_t& value : planes[p]) {
        value = random.Chance(0.3) ? (random.Chance(0.5) ? 255 : 0) : static_cast<uint8_t>(random.Below(256));
      }
    }
  }
  std::array<const uint8_t*, 3> data() const { return {planes[0].data(), planes[1].data(), planes[2].data()}; }

  int width, height;
  std::array<ptrdiff_t, 3> strides;
  std::vector<uint8_t> planes[3];
};

std::vector<uint8_t> ByLibrary(const NoiseFrame& frame, const int* matrix, bool full) {
  const int w = frame.width, h = frame.height;
  const AvOwned<SwsContext> scaler(sws_getContext(w, h, AV_PIX_FMT_YUV420P, w, h, AV_PIX_FMT_RGB24,
                                                  SWS_BILINEAR | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, nullptr,
                                                  nullptr, nullptr));
  sws_setColorspaceDetails(scaler.get(), matrix, full ? 1 : 0, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16,
                           1 << 16);
  constexpr int kSlack = 64;
  std::vector<uint8_t> rgb(static_cast<size_t>(w) * h * 3 + kSlack);
  const uint8_t* from[4] = {frame.planes[0].data(), frame.planes[1].data(), frame.planes[2].data()};
  const int strides[4] = {static_cast<int>(frame.strides[0]), static_cast<int>(frame.strides[1]),
                          static_cast<int>(frame.strides[2])};
  uint8_t* to[4] = {rgb.data()};
  const int to_strides[4] = {w * 3};
  EXPECT_EQ(sws_scale(scaler.get(), from, strides, 0, h, to, to_strides), h);
  rgb.resize(static_cast<size_t>(w) * h * 3);
  return rgb;
}

TEST(YuvToRgbTest, HasTheBitsOfTheLibrary) {
  for (const auto& [width, height] : {std::pair{8, 8}, {64, 48}, {130, 50}, {34, 18}, {322, 246}}) {
    const NoiseFrame frame(width, height);
    for (const int space : {AVCOL_SPC_BT709, AVCOL_SPC_SMPTE170M, AVCOL_SPC_BT2020_NCL}) {
      const int* matrix = sws_getCoefficients(space);
      for (const bool full : {false, true}) {
        const std::vector<uint8_t> expected = ByLibrary(frame, matrix, full);
        for (const bool simd : {true, false}) {
          YuvToRgb convert(width, height, {matrix[0], matrix[1], matrix[2], matrix[3]}, full, simd);
          std::vector<uint8_t> rgb(expected.size());
          convert.Apply(frame.data(), frame.strides, {0, 0, width, height}, rgb.data(), static_cast<size_t>(width) * 3);
          EXPECT_EQ(rgb, expected) << width << "x" << height << ", colours " << space << (full ? ", full" : "")
                                   << (simd ? "" : ", without vectors");
        }
      }
    }
  }
}

TEST(YuvToRgbTest, APartHasThePixelsOfTheWholeFrame) {
  const NoiseFrame frame(130, 50);
  const int* matrix = sws_getCoefficients(AVCOL_SPC_BT709);
  const std::vector<uint8_t> whole = ByLibrary(frame, matrix, false);
  YuvToRgb convert(130, 50, {matrix[0], matrix[1], matrix[2], matrix[3]}, false);
  for (const Window part : {Window{0, 0, 1, 1}, {2, 1, 37, 20}, {64, 49, 66, 1}, {128, 0, 2, 50}, {20, 7, 97, 43}}) {
    const auto row = static_cast<size_t>(part.width) * 3;
    std::vector<uint8_t> rgb(row * static_cast<size_t>(part.height));
    convert.Apply(frame.data(), frame.strides, part, rgb.data(), row);
    for (int y = 0; y < part.height; ++y) {
      const auto from = whole.begin() + ((part.y + y) * 130 + part.x) * 3;
      EXPECT_TRUE(std::equal(from, from + part.width * 3, rgb.begin() + static_cast<ptrdiff_t>(row) * y))
          << part.x << "," << part.y << " row " << y;
    }
  }
}

}  // namespace
}  // namespace lockstep::data
#endif
