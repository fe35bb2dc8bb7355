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
  EXPECT_GT(static_cast<double>(same), 0.99 * static_cast<double>(values)) << "nearly all have torch's bits";
}

}  // namespace
}  // namespace lockstep::data
