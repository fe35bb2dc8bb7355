// The batch rule against the values people ran on 8 to 64 GPUs, and for numbers nobody planned for.
#include "recipes/preset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep::recipes {
namespace {

using testing::HasSubstr;

// As the production configurations have it for eight GPUs.
engine::Config Base() {
  engine::Config config;
  config.train.steps = 100000;
  config.train.batch = 128;
  config.train.micro_batch = 8;
  config.train.optimizer.lr = 1e-4;
  config.train.schedule.warmup = 2000;
  config.checkpoint.every = 2000;
  config.data.validation.every = 1000;
  return config;
}

Preset Derive(int gpus, const engine::Config& base = Base(), int cores = 0) {
  Result<Preset> preset = DerivePreset(base, {.gpus = gpus, .cores = cores});
  EXPECT_TRUE(preset.ok()) << preset.status().ToString();
  return *preset;
}

std::map<std::string, std::string> Values(const Preset& preset) {
  std::map<std::string, std::string> values;
  for (const PresetLine& line : preset.lines) values[line.key] = line.to;
  return values;
}

TEST(Preset, GivesWhatPeopleRanOn8To64Gpus) {
  struct Row {
    int gpus;
    uint64_t micro, passes, batch;
    const char* lr;
    const char* warmup;
    const char* checkpoint;
  };
  // Theirs: 8/2/128 1e-4 2000 2000, 8/1/128 1e-4 1500 1000, 5/1/240 1.8e-4 1200 750, 4/1/256 2e-4 1000 500. The rule
  // differs where they had no rule: 16 GPUs train exactly as 8 do, so they warm up alike; 240 / 128 is 1.875; the same
  // samples of warm-up are 1067 steps of 240; and the root gives 1250 between checkpoints at 16.
  for (const Row& row : {Row{8, 8, 2, 128, "0.0001", "2000", "2000"}, Row{16, 8, 1, 128, "0.0001", "2000", "1250"},
                         Row{48, 5, 1, 240, "0.0001875", "1067", "750"}, Row{64, 4, 1, 256, "0.0002", "1000", "500"},
                         Row{1, 8, 16, 128, "0.0001", "2000", "2000"}, Row{2, 8, 8, 128, "0.0001", "2000", "2000"}}) {
    const Preset preset = Derive(row.gpus);
    EXPECT_EQ(preset.micro, row.micro) << row.gpus;
    EXPECT_EQ(preset.passes, row.passes) << row.gpus;
    EXPECT_EQ(preset.batch, row.batch) << row.gpus;
    EXPECT_EQ(preset.micro * preset.passes * static_cast<uint64_t>(row.gpus), row.batch);
    auto values = Values(preset);
    EXPECT_EQ(values["train.optimizer.lr"], row.lr) << row.gpus;
    EXPECT_EQ(values["train.schedule.warmup"], row.warmup) << row.gpus;
    EXPECT_EQ(values["checkpoint.every"], row.checkpoint) << row.gpus;
    EXPECT_EQ(values["data.validation.every"], "1000") << row.gpus;  // never switched off
    EXPECT_EQ(values["train.steps"], "100000");
  }
  EXPECT_EQ(Derive(48).batch_text, "5 samples x 48 ranks x 1 pass = 240");
}

TEST(Preset, HoldsItsPromisesForEveryNumberOfGpus) {
  for (int gpus = 1; gpus <= 300; ++gpus) {
    const Preset preset = Derive(gpus);
    const auto ranks = static_cast<uint64_t>(gpus);
    EXPECT_GE(preset.batch, 128u);
    EXPECT_LE(preset.batch, std::max<uint64_t>(256, ranks)) << gpus;
    EXPECT_LE(preset.micro, 8u) << gpus;
    if (gpus <= 16) EXPECT_EQ(preset.batch, 128u) << gpus;
    if (gpus > 16) EXPECT_EQ(preset.batch % ranks, 0u) << gpus;
    // No rank gets more in a pass than fits, and no pass is empty.
    EXPECT_GE(preset.micro * preset.passes * ranks, preset.batch) << gpus;
    EXPECT_LT((preset.passes - 1) * preset.micro, (preset.batch + ranks - 1) / ranks) << gpus;
    EXPECT_NEAR(std::stod(Values(preset)["train.optimizer.lr"]), 1e-4 * static_cast<double>(preset.batch) / 128, 6e-8);
  }
  EXPECT_THAT(Derive(3).batch_text, HasSubstr("128 samples over 3 ranks, 42 or 43 each, in 6 passes"));
  EXPECT_THAT(Derive(12).batch_text, HasSubstr("10 or 11 each"));
  EXPECT_EQ(Derive(24).batch, 192u);
  EXPECT_EQ(Derive(32).batch, 256u);
}

TEST(Preset, StartsFromTheConfigurationItIsGiven) {
  engine::Config small = Base();
  small.train.micro_batch = 2;  // a smaller GPU
  EXPECT_EQ(Derive(8, small).passes, 8u);
  EXPECT_EQ(Derive(8, small).batch, 128u);
  EXPECT_EQ(Derive(64, small).batch, 128u);
  small.train.batch = 16;
  EXPECT_EQ(Derive(1, small).passes, 8u);
  EXPECT_EQ(Derive(64, small).batch, 64u);
  EXPECT_EQ(Values(Derive(4, Base(), 32))["data.threads"], "7");
  EXPECT_EQ(Values(Derive(64, Base(), 128))["data.threads"], "12");
  EXPECT_EQ(Values(Derive(2, Base(), 2))["data.threads"], "1");
  EXPECT_EQ(Values(Derive(2))["data.threads"], "2");  // nothing known: as in the base
}

TEST(Preset, WhatTheUserSetsStaysAndTheRestFollows) {
  engine::Config base = Base();
  base.train.batch = 512;
  PresetOptions options{.gpus = 64};
  options.pinned = [](const std::string& key) { return key == "train.batch" || key == "checkpoint.every"; };
  const Preset preset = *DerivePreset(base, options);
  EXPECT_EQ(preset.batch, 512u);
  auto values = Values(preset);
  EXPECT_EQ(values["train.optimizer.lr"], "0.0001");
  EXPECT_EQ(values["checkpoint.every"], "2000");
  base.train.batch = 20;
  EXPECT_THAT(DerivePreset(base, options).status().ToString(), HasSubstr("64 GPUs cannot share a batch of 20"));
  EXPECT_FALSE(DerivePreset(base, {.gpus = 0}).ok());
}

TEST(Preset, ReproducibleRunsKeepTheirBatchAndGetEnoughShards) {
  engine::Config base = Base();
  base.train.reproducible = true;
  base.train.micro_batch = 0;
  auto values = Values(Derive(48, base));
  EXPECT_EQ(values["train.batch"], "128");
  EXPECT_EQ(values["train.shards"], "64");
  EXPECT_EQ(values.count("train.micro_batch"), 0u);
  EXPECT_EQ(Values(Derive(3, base))["train.shards"], "8");
  EXPECT_THAT(DerivePreset(base, {.gpus = 200}).status().ToString(), HasSubstr("use at most 128 GPUs"));
}

}  // namespace
}  // namespace lockstep::recipes
