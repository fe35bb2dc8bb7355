// Data of frame interpolation: septuplets of Vimeo90K, longer clips, UCF101's names; changes of colour.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "data/color_jitter.h"
#include "data/interpolation_clips.h"
#include "data/paired_clips.h"
#include "pictures.h"

namespace lockstep::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class InterpolationTest : public testing::Test {
 protected:
  // Frames of one level of grey: 10 times their number.
  void Clip(const std::string& name, int frames, int width = 20, int height = 16) {
    ASSERT_TRUE(MakeDirs(dir_ / name).ok());
    for (int i = 1; i <= frames; ++i) {
      WritePng(dir_ / fmt::format("{}/im{}.png", name, i), Flat(width, height, static_cast<uint8_t>(10 * i)));
    }
  }
  PairedConfig Config() {
    PairedConfig config{.kind = "folders", .target = dir_.path(), .frames = 4, .crop = 16};
    config.interpolate = true;
    config.every_start = false;
    return config;
  }
  PairedConfig Test() {
    PairedConfig config = Config();
    config.crop = 0;
    config.rotate = false;
    config.validation = true;
    return config;
  }
  // Numbers of the frames of a sample, the target last.
  std::vector<int> Numbers(const Source& source, const Draw& draw) {
    std::vector<std::vector<uint8_t>> buffers;
    std::vector<std::byte*> out;
    for (const Field& field : source.FieldsOf(draw.index)) buffers.emplace_back(field.bytes());
    for (auto& buffer : buffers) out.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    const Status read = source.Read(draw, out);
    EXPECT_TRUE(read.ok()) << read.message();
    std::vector<int> numbers;
    for (size_t i = 0; i < 4; ++i) numbers.push_back(buffers[0][i * buffers[0].size() / 4] / 10);
    numbers.push_back(buffers[1][0] / 10);
    return numbers;
  }
  std::shared_ptr<const Source> Windows(const PairedConfig& config) {
    Result<PairedSet> set = PairedSet::Open(config);
    EXPECT_TRUE(set.ok()) << set.status().ToString();
    return MakeInterpolationClips(std::make_shared<const PairedSet>(std::move(*set)));
  }
  TempDir dir_ = *TempDir::Create();
};

TEST_F(InterpolationTest, EverySecondFrameOfASeptupletAndTheOneInTheMiddle) {
  for (const char* clip : {"00001/0001", "00001/0002", "00002/0001"}) Clip(clip, 7);
  // sep_trainlist.txt names the clips alone.
  ASSERT_TRUE(WriteFileAtomic(dir_ / "sep_trainlist.txt", "00001/0001\n00002/0001\n\n").ok());
  PairedConfig config = Config();
  config.meta_info = dir_ / "sep_trainlist.txt";
  config.random_reverse = true;
  const Result<std::unique_ptr<Source>> source = OpenPaired(config);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ((*source)->size(), 2U);
  EXPECT_THAT((*source)->fields()[0].shape, ElementsAre(4, 3, 16, 16));
  EXPECT_THAT((*source)->fields()[1].shape, ElementsAre(1, 3, 16, 16));
  EXPECT_THAT(Numbers(**source, {.index = 1}), ElementsAre(1, 3, 5, 7, 4));
  std::set<std::vector<int>> seen;
  for (uint64_t epoch = 0; epoch < 20; ++epoch) {
    seen.insert(Numbers(**source, {.epoch = epoch, .index = 0, .augment = true}));
  }
  EXPECT_EQ(seen, (std::set<std::vector<int>>{{1, 3, 5, 7, 4}, {7, 5, 3, 1, 4}}));
}

TEST_F(InterpolationTest, LongerClipsBeginASampleAtEveryFrame) {
  Clip("a", 11);
  PairedConfig config = Config();
  config.every_start = true;
  config.intervals = {1};
  const auto source = *OpenPaired(config);
  EXPECT_EQ(source->size(), 11U);
  EXPECT_THAT(Numbers(*source, {.index = 2}), ElementsAre(3, 5, 7, 9, 6));
}

// As upstream's VFI_DAVIS and VFI_Vid4 cut clips, and its test of Vimeo90K.
TEST_F(InterpolationTest, WindowsOfTestClips) {
  Clip("a", 10);
  Clip("b", 7, 24, 18);
  PairedConfig config = Test();
  auto source = Windows(config);
  ASSERT_EQ(source->size(), 3U);  // 2 of a, whose 10th frame is not reached; 1 of b
  EXPECT_THAT(Numbers(*source, {.index = 1}), ElementsAre(3, 5, 7, 9, 6));
  EXPECT_EQ(source->Name(1), "a/im6");
  EXPECT_EQ(source->Origin(2), "b");
  EXPECT_THAT(source->FieldsOf(2)[1].shape, ElementsAre(1, 3, 18, 24));
  config.repeat_ends = true;
  source = Windows(config);
  ASSERT_EQ(source->size(), 8U);  // frames 2, 4, ..., 10 and 2, 4, 6
  EXPECT_THAT(Numbers(*source, {.index = 0}), ElementsAre(1, 1, 3, 5, 2));
  EXPECT_THAT(Numbers(*source, {.index = 4}), ElementsAre(7, 9, 10, 10, 10));
  EXPECT_THAT(Numbers(*source, {.index = 7}), ElementsAre(3, 5, 7, 7, 6));
  config.center = {8, 12};
  EXPECT_THAT(Windows(config)->fields()[0].shape, ElementsAre(4, 3, 8, 12));
  config.center = {17, 12};
  EXPECT_THAT(PairedSet::Open(config).status().ToString(), HasSubstr("larger than the frames of clip 'a'"));
}

TEST_F(InterpolationTest, Ucf101NamesItsTarget) {
  ASSERT_TRUE(MakeDirs(dir_ / "1").ok());
  for (const auto& [name, level] :
       {std::pair("frame0", 10), {"frame1", 30}, {"framet", 40}, {"frame2", 50}, {"frame3", 70}})
    WritePng(dir_ / fmt::format("1/{}.png", name), Flat(16, 16, static_cast<uint8_t>(level)));
  const auto source = Windows(Test());
  ASSERT_EQ(source->size(), 1U);
  EXPECT_EQ(source->Name(0), "1/framet");
  EXPECT_THAT(Numbers(*source, {}), ElementsAre(1, 3, 5, 7, 4));
}

TEST_F(InterpolationTest, WhatCannotBeIsAnError) {
  Clip("a", 6);
  const auto error = [&](auto change) {
    PairedConfig config = Config();
    change(&config);
    return OpenPaired(config).status().ToString();
  };
  EXPECT_THAT(error([](auto*) {}), HasSubstr("clip 'a' is too short: 7 frames at interval 1 need 7, it has 6"));
  EXPECT_THAT(error([](auto* c) { c->frames = 3; }), HasSubstr("interpolation from 3 frames"));
  EXPECT_THAT(error([](auto* c) { c->scale = 2; }), HasSubstr("at scale 2"));
}

TEST(GeneratedInterpolation, TheTargetLiesBetweenTheFramesInTheMiddle) {
  PairedConfig config{.frames = 4, .crop = 64, .clips = 2};
  PairedConfig whole = config;
  whole.frames = 7;
  config.interpolate = true;
  const auto source = *OpenPaired(config), all = *OpenPaired(whole);
  const auto read = [](const Source& from) {
    std::vector<std::vector<uint8_t>> buffers;
    std::vector<std::byte*> out;
    for (const Field& field : from.fields()) buffers.emplace_back(field.bytes());
    for (auto& buffer : buffers) out.push_back(reinterpret_cast<std::byte*>(buffer.data()));
    EXPECT_TRUE(from.Read({.index = 1, .augment = true}, out).ok());
    return buffers;
  };
  const auto mine = read(*source), sharp = read(*all);
  const size_t frame = mine[1].size();
  const auto of = [&](const std::vector<uint8_t>& frames, size_t i) {
    return std::vector<uint8_t>(frames.begin() + i * frame, frames.begin() + (i + 1) * frame);
  };
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(of(mine[0], i), of(sharp[1], 2 * i)) << i;
  EXPECT_EQ(mine[1], of(sharp[1], 3));
}

// Expected values by Python's colorsys and torchvision's formulas.
TEST(ColorJitter, AsTorchvision) {
  const ColorJitter jitter{
      .order = {ColorJitter::kContrast, ColorJitter::kHue, ColorJitter::kBrightness, ColorJitter::kSaturation},
      .brightness = 0.8,
      .contrast = 1.3,
      .saturation = 1.4,
      .hue = -0.2};
  std::vector<uint8_t> planes = {200, 10, 40, 128, 30, 250, 80, 128, 90, 60, 220, 128};
  JitterColors(jitter, planes.data(), 4);
  EXPECT_THAT(planes, ElementsAre(97, 215, 0, 106, 0, 207, 227, 106, 234, 0, 117, 106));
}

TEST(ColorJitter, DrawnWithinBoundsInAnyOrder) {
  std::set<std::array<ColorJitter::Change, 4>> orders;
  for (uint64_t i = 0; i < 300; ++i) {
    Random random(i);
    const ColorJitter jitter = DrawJitter(0.05, &random);
    orders.insert(jitter.order);
    for (const double factor : {jitter.brightness, jitter.contrast, jitter.saturation}) EXPECT_NEAR(factor, 1, 0.05);
    EXPECT_NEAR(jitter.hue, 0, 0.05);
  }
  EXPECT_EQ(orders.size(), 24U);
}

}  // namespace
}  // namespace lockstep::data
