#include "engine/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::engine {
namespace {

using testing::HasSubstr;

// A default of 2,000 steps of warm-up, as TAEHV's, in a run of 100,000.
struct ConfigRead {
  Config config;
  std::string error, effective;
};

ConfigRead ReadConfig(const std::string& file, const std::vector<std::string>& overrides = {}) {
  ConfigRead read;
  read.config.train.steps = 100000;
  read.config.train.schedule.warmup = 2000;
  ConfigTree tree = *ConfigTree::Parse(file, "c.yaml", ConfigTree::Format::kYaml);
  for (const std::string& one : overrides) EXPECT_TRUE(tree.Override(one).ok());
  ConfigReader reader(tree);
  DeclareConfig(reader, &read.config);
  read.error = reader.Finish().message();
  read.effective = reader.Dump();
  return read;
}

TEST(Config, ParametersAreOffloadedWithTheOptimizerOfStage3Only) {
  for (const char* file : {"train: {offload: {parameters: true}}",
                           "train: {zero: {stage: 2}, offload: {optimizer: true, parameters: true}}",
                           "train: {zero: {stage: 3}, offload: {parameters: true}}"}) {
    EXPECT_THAT(ReadConfig(file).error, HasSubstr("train.offload.parameters: has no effect here: it needs "
                                                  "train.zero.stage: 3 and train.offload.optimizer: true"))
        << file;
  }
  const ConfigRead read = ReadConfig("train: {zero: {stage: 3}, offload: {optimizer: true, parameters: true}}");
  EXPECT_EQ(read.error, "");
  EXPECT_TRUE(read.config.train.offload.parameters);
}

TEST(Config, AStageOrAMicroBatchThatDoesNotExistIsRefused) {
  EXPECT_THAT(ReadConfig("train: {zero: {stage: 4}}").error,
              HasSubstr("train.zero.stage: expected an integer of at least 0 and at most 3"));
  EXPECT_THAT(ReadConfig("train: {micro_batch: -1}").error, HasSubstr("train.micro_batch: expected"));
  EXPECT_THAT(ReadConfig("train: {batch: 0}").error, HasSubstr("train.batch: expected an integer of at least 1"));
  const ConfigRead whole = ReadConfig("train: {micro_batch: 0, batch: 8}");  // a rank's whole share
  EXPECT_EQ(whole.error, "");
  EXPECT_EQ(PlanBatch(whole.config.train, 2)->accumulation, 1u);
}

TEST(Config, AWarmUpNotChosenForThisRunIsAtMostATenthOfIt) {
  const struct {
    const char* file;
    std::vector<std::string> overrides;
    uint64_t warmup;
  } rows[] = {
      {"{}", {}, 2000},
      {"{}", {"train.steps=200"}, 20},
      {"{}", {"train.steps=5"}, 0},
      {"train: {steps: 200}", {}, 20},
      {"train: {schedule: {warmup: 150}}", {"train.steps=200"}, 150},
      {"train: {steps: 100000, schedule: {warmup: 2000}}", {"train.steps=200"}, 20},
      {"train: {steps: 200, schedule: {warmup: 200}}", {}, 200},
      {"train: {steps: 200}", {"train.schedule.warmup=7"}, 7},
  };
  for (const auto& row : rows) {
    const ConfigRead read = ReadConfig(row.file, row.overrides);
    EXPECT_EQ(read.error, "") << row.file;
    EXPECT_EQ(read.config.train.schedule.warmup, row.warmup) << row.file;
    EXPECT_THAT(read.effective, HasSubstr("warmup: " + std::to_string(row.warmup) + "\n")) << row.file;
  }
}

TEST(Config, AWarmUpChosenForThisRunThatDoesNotFitIsAMistake) {
  for (const ConfigRead& read : {ReadConfig("train: {steps: 200, schedule: {warmup: 201}}"),
                                 ReadConfig("train: {steps: 200}", {"train.schedule.warmup=201"}),
                                 ReadConfig("{}", {"train.steps=200", "train.schedule.warmup=201"})}) {
    EXPECT_THAT(read.error, HasSubstr("train.schedule.warmup: the warm-up alone has 201 steps, but train.steps is 200; "
                                      "set it to 20, for instance"));
  }
}

TEST(Config, WhatOneKindWritesAnotherReads) {
  // Every key with its value, as `lockstep config` writes it; then another kind of each section is chosen in the file.
  std::string text = ReadConfig("{}").effective;
  const auto change = [&](const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << "\n" << text;
    text.replace(at, from.size(), to);
  };
  change("kind: adamw\n", "kind: sgd\n");
  change("kind: cosine\n", "kind: multistep\n");
  change("reproducible: false\n", "reproducible: true\n");
  EXPECT_EQ(ReadConfig(text).error, "");
}

}  // namespace
}  // namespace lockstep::engine
