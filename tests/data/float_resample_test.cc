// Resizing of floats, against torch's interpolate(antialias=True) (make_float_goldens.py).
#include "data/float_resample.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/json.h"
#include "paths.h"

namespace lockstep::data {
namespace {

std::vector<float> FloatPattern(int width, int height) {
  std::vector<float> plane;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) plane.push_back(static_cast<float>((x * 7 + y * 13 + x * y) % 251) / 251);
  }
  return plane;
}

// Of a and b, in units of the last place of the larger.
double Ulps(float a, float b) {
  const float larger = std::max(std::fabs(a), std::fabs(b));
  const double place = std::nextafter(larger, INFINITY) - larger;
  return std::fabs(static_cast<double>(a) - b) / place;
}

TEST(FloatResampleTest, PixelsAreResizedAsEachOfTheirColours) {
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
    for (const int width : {5, 9, 40}) {
      const FloatResample resample(filter, 23, 1, width, 1);
      const auto size = static_cast<size_t>(width);
      std::vector<uint8_t> rows[2];
      for (size_t i = 0; i < 2 * 23 * 3; ++i) rows[i / (23 * 3)].push_back(static_cast<uint8_t>(i * 37));
      std::vector<float> room(23 * 8), together[2] = {std::vector<float>(size * 4), std::vector<float>(size * 4)};
      resample.AcrossPixels(rows[0].data(), rows[1].data(), room.data(), together[0].data(), together[1].data());
      for (size_t row = 0; row < 2; ++row) {
        for (size_t c = 0; c < 3; ++c) {
          std::vector<float> one(23), alone(size);
          for (size_t x = 0; x < one.size(); ++x) one[x] = rows[row][x * 3 + c];
          resample.Across(one.data(), alone.data());
          for (size_t x = 0; x < size; ++x) EXPECT_EQ(alone[x], together[row][x * 4 + c]) << row << c << x;
        }
      }
    }
  }
}

TEST(FloatResampleTest, IsWithinOneUlpOfTorch) {
  const auto goldens = *ReadJsonFile(SourceDir() + "/tests/data/float_resample_goldens.json");
  ASSERT_EQ(goldens["pictures"].size(), 24);
  size_t values = 0, same = 0;
  for (const auto& golden : goldens["pictures"]) {
    const auto from = golden["from"].get<std::vector<int>>(), to = golden["to"].get<std::vector<int>>();
    const bool cubic = golden["mode"] == "bicubic";
    const FloatResample resample(cubic ? Filter::kBicubic : Filter::kBilinear, from[0], from[1], to[0], to[1]);
    std::vector<float> out(static_cast<size_t>(to[0]) * to[1]);
    resample.Apply(FloatPattern(from[0], from[1]).data(), out.data());
    const auto every = golden["every"].get<size_t>();
    size_t at = 0;
    for (const auto& bits : golden["bits"]) {
      const float wanted = std::bit_cast<float>(bits.get<uint32_t>());
      ASSERT_LE(Ulps(out[at], wanted), 1) << golden["mode"] << golden["from"] << golden["to"] << " value " << at << ": "
                                          << out[at] << ", torch has " << wanted;
      same += out[at] == wanted ? 1 : 0;
      ++values;
      at += every;
    }
  }
  EXPECT_GT(values, 5000);
  EXPECT_GT(static_cast<double>(same), 0.999 * static_cast<double>(values)) << "nearly all have torch's bits";
}

}  // namespace
}  // namespace lockstep::data
