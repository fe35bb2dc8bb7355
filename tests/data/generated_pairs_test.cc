// Scenes with blur and spikes: what the source promises, and that the spikes have what the blur has lost.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "data/paired_clips.h"
#include "data/spike_scene.h"

namespace lockstep::data {
namespace {

double PsnrOf(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return -10 * std::log10(sum / static_cast<double>(a.size()));
}

std::vector<double> Levels(const std::vector<uint8_t>& bytes) {
  std::vector<double> levels;
  for (const uint8_t byte : bytes) levels.push_back(byte / 255.0);
  return levels;
}

// Over many scenes: blur costs several dB, and spikes of the middle of the exposure have much of what it took.
TEST(GeneratedPairs, SpikesCarryWhatBlurHasLost) {
  double blurred = 0, spikes = 0;
  constexpr int kScenes = 16;
  for (int n = 0; n < kScenes; ++n) {
    SpikeScene scene(0, n, {});
    const SpikeScene::Exposure e = scene.Next();
    blurred += PsnrOf(Levels(e.blurred), Levels(e.sharp)) / kScenes;
    std::vector<double> grey;
    for (size_t i = 0; i < 4096; ++i) {
      grey.push_back((0.299 * e.sharp[i] + 0.587 * e.sharp[4096 + i] + 0.114 * e.sharp[8192 + i]) / 255);
    }
    const SpikeFile file = *SpikeFile::FromBytes(e.spikes, scene.sensor(), "scene");
    EXPECT_EQ(file.steps(), 88);
    const std::vector<float> tfp = *RenderSpikes(file, {.half_window = 10}, {0, 0, 64, 64});
    spikes += PsnrOf({tfp.begin(), tfp.end()}, grey) / kScenes;
  }
  EXPECT_LT(blurred, 27);
  EXPECT_GT(blurred, 18);
  EXPECT_GT(spikes, blurred + 3);
}

// A pixel fires as often as its light says: nothing is lost between steps and exposures.
TEST(GeneratedPairs, APixelFiresAsOftenAsItsLightSays) {
  SpikeScene scene(5, 3, {.height = 32, .width = 32});
  double light = 0, count = 0;
  for (int i = 0; i < 6; ++i) {
    const SpikeScene::Exposure e = scene.Next();
    for (size_t k = 0; k < 1024; ++k) {
      light += 88 * (0.299 * e.blurred[k] + 0.587 * e.blurred[1024 + k] + 0.114 * e.blurred[2048 + k]) / 255;
    }
    for (const char byte : e.spikes) count += std::popcount(static_cast<unsigned char>(byte));
  }
  EXPECT_NEAR(count / light, 1, 0.01);
}

TEST(GeneratedPairs, SamplesArePureFunctionsOfTheirDraw) {
  PairedConfig config{.frames = 3, .crop = 32, .clips = 8};
  config.spikes = {.use = true, .form = {.channels = 2}};
  const auto source = *OpenPaired(config);
  EXPECT_EQ(source->size(), 8U);
  const auto read = [&](const Draw& draw) {
    std::vector<std::vector<std::byte>> fields;
    std::vector<std::byte*> out;
    for (const Field& field : source->fields()) fields.emplace_back(field.bytes());
    for (auto& field : fields) out.push_back(field.data());
    EXPECT_TRUE(source->Read(draw, out).ok());
    return fields;
  };
  const Draw draw{.seed = 1, .epoch = 2, .index = 3, .augment = true};
  const auto first = read(draw);
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first, read(draw));
  EXPECT_NE(first, read({.seed = 1, .epoch = 3, .index = 3, .augment = true}));
  EXPECT_EQ(read({.epoch = 1, .index = 3}), read({.epoch = 2, .index = 3}));
  config.crop = 36;
  EXPECT_FALSE(OpenPaired(config).ok());
}

// Spikes and target are turned alike: the spikes of a turned sample resemble its target, not another way round.
TEST(GeneratedPairs, SpikesAreTurnedAsTheTarget) {
  PairedConfig config{.frames = 1, .crop = 32, .clips = 40};
  config.spikes = {.use = true, .form = {.half_window = 10}};
  const auto source = *OpenPaired(config);
  int alike = 0;
  for (uint64_t index = 0; index < 40; ++index) {
    std::vector<uint8_t> input(3072), spikes(1024), target(3072);
    std::vector<std::byte*> out;
    for (auto* field : {&input, &spikes, &target}) out.push_back(reinterpret_cast<std::byte*>(field->data()));
    ASSERT_TRUE(source->Read({.epoch = 1, .index = index, .augment = true}, out).ok());
    std::vector<double> grey, same, mirrored;
    for (int i = 0; i < 1024; ++i) {
      grey.push_back((0.299 * target[i] + 0.587 * target[1024 + i] + 0.114 * target[2048 + i]) / 255);
      same.push_back(spikes[i] / 255.0);
      mirrored.push_back(spikes[i / 32 * 32 + 31 - i % 32] / 255.0);
    }
    alike += PsnrOf(same, grey) > PsnrOf(mirrored, grey) + 3 ? 1 : 0;
  }
  EXPECT_GE(alike, 36);
}

}  // namespace
}  // namespace lockstep::data
