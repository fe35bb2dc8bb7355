// Generated scenes have the statistics of natural video. Their power spectrum is the one known best: power falls with
// the square of the frequency (Field 1987; Ruderman and Bialek 1994).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "data/random.h"
#include "data/scene.h"

namespace lockstep::data {
namespace {

constexpr int kSide = 64;
constexpr int kPixels = kSide * kSide;
constexpr int kClips = 200;
// Cycles per picture. Below, the window decides; above, the softened edges (the optics of a camera do the same).
constexpr int kLowest = 2;
constexpr int kHighest = 24;

struct Picture {
  std::vector<double> luma = std::vector<double>(kPixels);
  std::vector<double> red = std::vector<double>(kPixels);  // colour differences: red and blue less luma
  std::vector<double> blue = std::vector<double>(kPixels);
};

Picture FirstFrame(uint64_t clip) {
  std::vector<uint8_t> planes(3 * kPixels);
  Scene(/*seed=*/0, clip, kSide, kSide).Render({}, 0, planes.data());
  Picture picture;
  for (int i = 0; i < kPixels; ++i) {
    picture.luma[i] = 0.299 * planes[i] + 0.587 * planes[kPixels + i] + 0.114 * planes[2 * kPixels + i];
    picture.red[i] = planes[i] - picture.luma[i];
    picture.blue[i] = planes[2 * kPixels + i] - picture.luma[i];
  }
  return picture;
}

// Adds the power of a picture at 0 to kHighest cycles, averaged over rings one cycle wide. A Hann window takes off what
// the picture's borders would add: a border is a step, and steps alone already have a spectrum of 1/f^2.
void AddPower(const std::vector<double>& picture, std::vector<double>* power) {
  static const auto kTables = [] {
    struct Tables {
      double cos[kSide], sin[kSide], window[kSide];
    } tables;
    for (int i = 0; i < kSide; ++i) {
      tables.cos[i] = std::cos(2 * std::numbers::pi * i / kSide);
      tables.sin[i] = std::sin(2 * std::numbers::pi * i / kSide);
      tables.window[i] = 0.5 - 0.5 * tables.cos[i];
    }
    return tables;
  }();
  const auto& [cos, sin, window] = kTables;
  double mean = 0;
  double weights = 0;
  for (int i = 0; i < kPixels; ++i) {
    const double weight = window[i / kSide] * window[i % kSide];
    mean += weight * picture[i];
    weights += weight;
  }
  mean /= weights;
  // Rows first: [cycles across, y].
  std::vector<double> re((kHighest + 1) * kSide), im((kHighest + 1) * kSide);
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const double value = (picture[y * kSide + x] - mean) * window[x] * window[y];
      for (int kx = 0; kx <= kHighest; ++kx) {
        re[kx * kSide + y] += value * cos[kx * x % kSide];
        im[kx * kSide + y] -= value * sin[kx * x % kSide];
      }
    }
  }
  std::vector<double> sums(kHighest + 1);
  std::vector<int> counts(kHighest + 1);
  for (int kx = 0; kx <= kHighest; ++kx) {
    for (int ky = -kHighest; ky <= kHighest; ++ky) {
      const auto ring = static_cast<int>(std::lround(std::hypot(kx, ky)));
      if (ring > kHighest) continue;
      double real = 0;
      double imaginary = 0;
      for (int y = 0; y < kSide; ++y) {
        const int turn = (ky + kSide) * y % kSide;
        real += re[kx * kSide + y] * cos[turn] + im[kx * kSide + y] * sin[turn];
        imaginary += im[kx * kSide + y] * cos[turn] - re[kx * kSide + y] * sin[turn];
      }
      sums[ring] += real * real + imaginary * imaginary;
      ++counts[ring];
    }
  }
  power->resize(kHighest + 1);
  for (int k = 0; k <= kHighest; ++k) (*power)[k] += sums[k] / counts[k];
}

struct Fit {
  double slope = 0;  // of log power over log frequency
  double worst = 1;  // the largest factor between the spectrum and the fitted line
};

Fit FitLine(const std::vector<double>& power) {
  double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (int k = kLowest; k <= kHighest; ++k) {
    const double x = std::log(k);
    const double y = std::log(power[k]);
    n += 1;
    sx += x;
    sy += y;
    sxx += x * x;
    sxy += x * y;
  }
  Fit fit;
  fit.slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
  const double offset = (sy - fit.slope * sx) / n;
  for (int k = kLowest; k <= kHighest; ++k) {
    fit.worst = std::max(fit.worst, std::exp(std::abs(std::log(power[k]) - offset - fit.slope * std::log(k))));
  }
  return fit;
}

Fit FitClips(uint64_t clips, const std::function<std::vector<double>(uint64_t clip)>& draw) {
  std::vector<double> power;
  for (uint64_t clip = 0; clip < clips; ++clip) AddPower(draw(clip), &power);
  return FitLine(power);
}

// What "1/f^2" means here: the mean power of many pictures' luma, from 2 to 24 cycles per 64 pixels, follows a straight
// line in double logarithmic scale (to a factor of 1.25 everywhere) whose slope is -2 within 15 %.
bool IsNatural(const Fit& fit) { return std::abs(fit.slope + 2) <= 0.15 * 2 && fit.worst <= 1.25; }

TEST(SceneStatistics, PowerFallsWithTheSquareOfTheFrequency) {
  const Fit fit = FitClips(kClips, [](uint64_t clip) { return FirstFrame(clip).luma; });
  EXPECT_TRUE(IsNatural(fit)) << "slope " << fit.slope << ", largest factor beside the line " << fit.worst;
}

// The same check refuses what it should: noise, flat colours with edges alone, and stripes and checkers at the scale of
// pixels, of which generated clips consisted once.
TEST(SceneStatistics, OtherPicturesDoNotPass) {
  const auto wave = [](uint64_t clip, int x, int y, bool checker) {
    Random random(clip);
    const double frequency = 2 * std::numbers::pi / random.Uniform(5, 16);
    const double angle = random.Uniform(0, std::numbers::pi);
    const double first = std::sin(frequency * (x * std::cos(angle) + y * std::sin(angle)));
    const double second = std::sin(frequency * (y * std::cos(angle) - x * std::sin(angle)));
    return 128 + 60 * std::clamp(2 * (checker ? first * second : first), -1.0, 1.0);
  };
  const auto fill = [](const std::function<double(int x, int y)>& value) {
    std::vector<double> picture(kPixels);
    for (int i = 0; i < kPixels; ++i) picture[i] = value(i % kSide, i / kSide);
    return picture;
  };
  const struct {
    const char* name;
    std::function<std::vector<double>(uint64_t clip)> draw;
  } rows[] = {
      {"white noise",
       [&](uint64_t clip) {
         Random random(clip);
         return fill([&](int, int) { return random.Uniform(0, 255); });
       }},
      {"stripes", [&](uint64_t clip) { return fill([&](int x, int y) { return wave(clip, x, y, false); }); }},
      {"checkers", [&](uint64_t clip) { return fill([&](int x, int y) { return wave(clip, x, y, true); }); }},
      {"a disc",
       [&](uint64_t clip) {
         Random random(clip);
         const double radius = random.Uniform(8, 24);
         return fill([&](int x, int y) { return std::hypot(x - 32, y - 32) < radius ? 200.0 : 60.0; });
       }},
      {"a scene seen through frosted glass",
       [&](uint64_t clip) {
         const std::vector<double> sharp = FirstFrame(clip).luma;
         return fill([&](int x, int y) {
           double sum = 0;
           for (int dy = -1; dy <= 1; ++dy) {
             for (int dx = -1; dx <= 1; ++dx) {
               sum += sharp[std::clamp(y + dy, 0, kSide - 1) * kSide + std::clamp(x + dx, 0, kSide - 1)];
             }
           }
           return sum / 9;
         });
       }},
  };
  for (const auto& row : rows) {
    const Fit fit = FitClips(kClips / 4, row.draw);
    EXPECT_FALSE(IsNatural(fit)) << row.name << ": slope " << fit.slope << ", factor " << fit.worst;
  }
}

// A picture of the world is mostly light and shade: colour differences have a fraction of its power at every frequency,
// and the finer the detail the smaller the fraction.
TEST(SceneStatistics, ColourIsWeakerAndSmootherThanLight) {
  std::vector<double> luma, red, blue;
  for (uint64_t clip = 0; clip < kClips; ++clip) {
    const Picture picture = FirstFrame(clip);
    AddPower(picture.luma, &luma);
    AddPower(picture.red, &red);
    AddPower(picture.blue, &blue);
  }
  const auto share = [&](int k) { return (red[k] + blue[k]) / 2 / luma[k]; };
  for (int k = kLowest; k <= kHighest; ++k) EXPECT_LT(share(k), 0.3) << k;
  EXPECT_LT(share(kHighest), 0.75 * share(kLowest));
}

// Half a frame of time moves a picture by less than a whole one: motion has no grid of pixels or frames. A little noise
// remains when nothing moves, as of a sensor.
TEST(SceneStatistics, MotionIsFinerThanPixelsAndFrames) {
  const auto mean_difference = [](uint64_t clip, double time) {
    std::vector<uint8_t> now(3 * kPixels);
    std::vector<uint8_t> later(3 * kPixels);
    Scene scene(0, clip, kSide, kSide);
    scene.Render({}, 0, now.data());
    scene.Render({.time = time}, 0, later.data());
    double sum = 0;
    for (size_t i = 0; i < now.size(); ++i) sum += std::abs(now[i] - later[i]);
    return sum / static_cast<double>(now.size());
  };
  double still = 0, half = 0, whole = 0, eight = 0;
  for (uint64_t clip = 0; clip < 50; ++clip) {
    still += mean_difference(clip, 1e-6) / 50;
    half += mean_difference(clip, 0.5) / 50;
    whole += mean_difference(clip, 1) / 50;
    eight += mean_difference(clip, 8) / 50;
  }
  EXPECT_GT(still, 0.5);
  EXPECT_LT(still, 2.5);
  EXPECT_GT(half - still, 0.3 * (whole - still));
  EXPECT_LT(half - still, 0.75 * (whole - still));
  EXPECT_GT(eight, 2 * whole);
}

}  // namespace
}  // namespace lockstep::data
