#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "data/sources.h"

namespace lockstep::data {
namespace {

using Pixels = std::vector<uint8_t>;

Pixels Read(const Source& source, const Draw& draw) {
  Pixels out(source.fields()[0].bytes());
  std::byte* data = reinterpret_cast<std::byte*>(out.data());
  EXPECT_TRUE(source.Read(draw, {&data, 1}).ok());
  return out;
}

std::unique_ptr<Source> Clips(const SourceConfig& config = {}) { return *OpenSource(config); }

double MeanDifference(const uint8_t* a, const uint8_t* b, size_t count) {
  double sum = 0;
  for (size_t i = 0; i < count; ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(count);
}

TEST(ClipsTest, AClipIsAFunctionOfSeedAndNumber) {
  const auto source = Clips({.seed = 3});
  const Pixels clip = Read(*source, {.index = 5});
  EXPECT_EQ(Read(*Clips({.seed = 3}), {.seed = 99, .epoch = 4, .index = 5}), clip);
  EXPECT_NE(Read(*source, {.index = 6}), clip);
  EXPECT_NE(Read(*Clips({.seed = 4}), {.index = 5}), clip);
  EXPECT_EQ(source->Name(5), "clip 5");
  EXPECT_NE(source->Digest(), Clips({.seed = 4})->Digest());
}

TEST(ClipsTest, EpochsVaryAClipOnlyWhenAugmenting) {
  const auto source = Clips();
  std::set<Pixels> clips;
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    const Draw draw{.seed = 1, .epoch = epoch, .index = 2, .augment = true};
    clips.insert(Read(*source, draw));
    EXPECT_EQ(Read(*source, draw), Read(*source, draw));
  }
  EXPECT_EQ(clips.size(), 5);
}

TEST(ClipsTest, ScenesHaveDetailAndMove) {
  const auto source = Clips();
  constexpr size_t kFrame = 3 * 64 * 64;
  int moving = 0;
  for (uint64_t index = 0; index < 50; ++index) {
    const Pixels clip = Read(*source, {.index = index});
    double mean = 0;
    double squares = 0;
    for (size_t i = 0; i < kFrame; ++i) {
      mean += clip[i];
      squares += clip[i] * clip[i];
    }
    mean /= kFrame;
    EXPECT_GT(std::sqrt(squares / kFrame - mean * mean), 8) << index;
    const double step = MeanDifference(clip.data(), clip.data() + kFrame, kFrame);
    const double jump = MeanDifference(clip.data(), clip.data() + 11 * kFrame, kFrame);
    moving += jump > 3 ? 1 : 0;
    EXPECT_LT(step, 50) << index;  // neighbours are the same scene: independent clips differ by about 70
    EXPECT_GT(MeanDifference(clip.data(), Read(*source, {.index = index + 50}).data(), kFrame), step);
  }
  EXPECT_GT(moving, 45);
}

TEST(ClipsTest, AllSizesWork) {
  for (auto [height, width] : {std::pair{1, 1}, {8, 8}, {16, 100}, {97, 33}, {256, 320}}) {
    const auto source = Clips({.frames = 2, .height = height, .width = width});
    for (uint64_t index = 0; index < 8; ++index) {
      EXPECT_EQ(Read(*source, {.index = index, .augment = index % 2 == 1}).size(), 2u * 3 * height * width);
    }
  }
}

TEST(ClipsTest, ALargerStrideIsFasterMotionOfTheSameScene) {
  const Pixels slow = Read(*Clips({.frames = 5}), {.index = 1});
  const Pixels fast = Read(*Clips({.frames = 3, .min_stride = 2, .max_stride = 2}), {.index = 1});
  constexpr size_t kFrame = 3 * 64 * 64;
  for (int t = 0; t < 3; ++t) EXPECT_EQ(std::memcmp(&fast[t * kFrame], &slow[2 * t * kFrame], kFrame), 0);
}

TEST(ClipsTest, FarClipsWork) {
  const auto source = Clips({.clips = uint64_t{1} << 40});
  EXPECT_EQ(Read(*source, {.index = (uint64_t{1} << 40) - 1}).size(), 12u * 3 * 64 * 64);
  EXPECT_FALSE(OpenSource({.clips = 0}).ok());
}

TEST(ClipsTest, ReadingStopsWhenItIsCancelled) {
  const auto source = Clips();
  const std::atomic<bool> cancelled = true;
  Pixels out(source->fields()[0].bytes());
  std::byte* data = reinterpret_cast<std::byte*>(out.data());
  EXPECT_EQ(source->Read({.cancelled = &cancelled}, {&data, 1}).code(), Code::kInterrupted);
}

}  // namespace
}  // namespace lockstep::data
