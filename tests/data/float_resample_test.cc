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
      std::vector<float> line(23 * 4), together(static_cast<size_t>(width) * 3);
      for (size_t i = 0; i < line.size(); ++i) line[i] = static_cast<float>(i * 37 % 256);
      resample.AcrossPixels(line.data(), together.data());
      for (size_t c = 0; c < 3; ++c) {
        std::vector<float> one(23), alone(static_cast<size_t>(width));
        for (size_t x = 0; x < one.size(); ++x) one[x] = line[x * 4 + c];
        resample.Across(one.data(), alone.data());
        EXPECT_TRUE(
            std::equal(alone.begin(), alone.end(), together.begin() + static_cast<ptrdiff_t>(c * alone.size())));
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
