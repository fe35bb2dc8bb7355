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
  EXPECT_THAT(ReadConfig("data: {path: /d}").error, HasSubstr("data.kind is clips"));
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
