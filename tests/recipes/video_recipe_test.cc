// The section `data` of recipes on videos.
#include "recipes/video_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/registry.h"

namespace lockstep::recipes {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Read {
  std::string error, effective;
};

Read ReadConfig(const std::string& file) {
  const std::unique_ptr<engine::Recipe> recipe = *Registry::With({})->Make("denoise");
  engine::Config config;
  const ConfigTree tree = *ConfigTree::Parse(file, "c.yaml", ConfigTree::Format::kYaml);
  ConfigReader reader(tree);
  engine::DeclareConfig(reader, &config, [&](ConfigReader& r) { recipe->DeclareData(r, &config.data); });
  Read read;
  read.error = reader.Finish().message();
  read.effective = reader.Dump();
  return read;
}

TEST(VideoRecipe, WhatOneKindOfDataWritesAnotherReads) {
  std::string text = ReadConfig("{}").effective;
  const std::string from = "kind: clips\n";
  ASSERT_NE(text.find(from), std::string::npos) << text;
  text.replace(text.find(from), from.size(), "kind: videos\n  path: /d\n");
  EXPECT_EQ(ReadConfig(text).error, "");
  EXPECT_THAT(ReadConfig("data: {kind: videos, path: /d, clips: 7}").error,
              HasSubstr("data.clips: has no effect here"));
  EXPECT_THAT(ReadConfig("data: {path: /d}").error, HasSubstr("data.path: has no effect here: kind is clips"));
}

TEST(VideoRecipe, SetsOfAMixHaveTheirOwnKeys) {
  const Read good = ReadConfig(
      "data: {frames: 3, mix: [{weight: 0.7, kind: videos, path: /a}, {weight: 0.3, kind: clips, clips: 9}]}");
  EXPECT_EQ(good.error, "");
  EXPECT_EQ(ReadConfig(good.effective).error, "") << "what is written out is read again";
  EXPECT_EQ(ReadConfig(good.effective).effective, good.effective);
  const std::pair<const char*, const char*> rows[] = {
      {"{mix: [{kind: clips}]}", "data.mix[0].weight"},
      {"{mix: [{weight: 0, kind: clips}]}", "data.mix[0].weight"},
      {"{mix: [{weight: 1, kind: videos}]}", "data.mix[0].path"},
      {"{mix: [{weight: 1, clips: 3}], kind: videos, path: /d}", "data.path: has no effect here: each set of data.mix"},
      {"{mix: [{weight: 1, clips: 3}], last_batch: keep}", "data.last_batch: has no effect here"},
      {"{mix: [{weight: 1, clips: 3, height: 9}]}", "data.mix[0].height: unknown key"},
  };
  for (const auto& [data, says] : rows) EXPECT_THAT(ReadConfig(std::string("data: ") + data).error, HasSubstr(says));
}

TEST(VideoRecipe, BucketsStandInsteadOfHeightAndWidth) {
  const Read good = ReadConfig("data: {kind: images, path: /a, buckets: [64x64, 48x96]}");
  EXPECT_EQ(good.error, "");
  EXPECT_EQ(ReadConfig(good.effective).effective, good.effective) << "what is written out is read again";
  const std::pair<const char*, const char*> rows[] = {
      {"{buckets: [64x64], height: 32}", "data.height: has no effect here: data.buckets says the sizes"},
      {"{buckets: [64]}", "data.buckets"},
      {"{kind: hdf5, path: /d, buckets: [64x64]}", "data.buckets: has no effect here"},
      {"{mix: [{weight: 1, clips: 3}], buckets: [64x64]}",
       "data.buckets: has no effect here: data.mix draws sample by sample"},
  };
  for (const auto& [data, says] : rows) EXPECT_THAT(ReadConfig(std::string("data: ") + data).error, HasSubstr(says));
}

TEST(VideoRecipe, OtherRecipesHaveNoFrames) {
  engine::Config config;
  const ConfigTree tree = *ConfigTree::Parse("data: {height: 64}", "c.yaml", ConfigTree::Format::kYaml);
  ConfigReader reader(tree);
  engine::DeclareConfig(reader, &config);
  EXPECT_THAT(reader.Finish().message(), HasSubstr("data.height: unknown key"));
  EXPECT_THAT(reader.Dump(), Not(HasSubstr("frames")));
}

}  // namespace
}  // namespace lockstep::recipes
