// Features of an encoder that no recipe knows, beside the samples of a training.
#include "recipes/cached_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <filesystem>

#include "base/files.h"
#include "cache/folder.h"
#include "engine/feed.h"
#include "recipes/encoder_cache.h"

namespace lockstep::recipes {
namespace {

using testing::HasSubstr;

struct CachedFeaturesTest : testing::Test {
  TempDir dir = *TempDir::Create();
  FeaturesConfig config{dir / "encoder.yaml", "read"};
  EncoderCacheConfig build;
  std::shared_ptr<const data::Source> source;

  void SetUp() override { at::set_num_threads(1); }

  // An encoder that gives `result`, and the cache of all clips.
  void Build(const std::string& result, const std::string& context, const std::string& more = "") {
    torch::jit::Module module("Encoder");
    module.define("def forward(self, x):\n    return " + result + "\n");
    module.save(dir / "encoder.pt");
    ASSERT_TRUE(RemoveAll(dir / "cache").ok());
    const std::string text = "encoder: {path: " + (dir / "encoder.pt") + ", batch: 1}\n" +
                             "data: {kind: clips, clips: 12, frames: 3, height: 16, width: 24, threads: 0}\n" +
                             "cache: {root: " + (dir / "cache") + ", context: " + context + more + "}\n";
    ASSERT_TRUE(WriteFileAtomic(config.config, text, 0644, Durability::kProcess).ok());
    build = *ReadEncoderCacheConfig(config.config, {});
    const Status built = BuildEncoderCache(build, at::kCPU, {});
    ASSERT_TRUE(built.ok()) << built.ToString();
    source = *data::OpenSource(build.clips);
  }
  std::unique_ptr<CachedFeatures> Open() {
    auto opened = CachedFeatures::Open(config, source->fields()[0].shape);
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    if (!opened.ok()) return nullptr;
    EXPECT_TRUE((*opened)->Start(at::kCPU, /*choose=*/false).ok());
    return std::move(*opened);
  }
  // All clips as one batch.
  engine::TensorBatch Batch(const CachedFeatures& features) const {
    const auto plan = [&](uint64_t) {
      engine::Feed::Planned planned;
      for (uint64_t i = 0; i < source->size(); ++i) planned.ids.push_back({0, i, i});
      return planned;
    };
    engine::Feed feed(features.With(source), plan, 1, {.threads = 2}, at::kCPU);
    return feed.Next()->batch;
  }
  static double Metric(const CachedFeatures& features, const std::string& name) {
    for (const auto& [key, value] : features.Metrics()) {
      if (key == name) return value;
    }
    return -1;
  }
  void RemoveSomeUnits() const {
    const cache::Folder folder = *cache::Folder::Open(build.root + "/" + cache::Namespaces(build.root)->front());
    const std::vector<std::string> units = *folder.Units();
    ASSERT_GE(units.size(), 4u);
    for (size_t i = 0; i < units.size(); i += 2) std::filesystem::remove(folder.UnitPath(units[i]));
  }
};

TEST_F(CachedFeaturesTest, EverySampleHasWhatTheEncoderGives) {
  struct Row {
    const char *result, *context, *more, *field;
    at::ScalarType type;
    std::vector<int64_t> shape;
  };
  for (const Row& row : std::vector<Row>{
           {"x.cumsum(1).mean([3, 4])", "ordered", "", "features/features", at::kFloat, {12, 3, 3}},
           {"{'tokens': x.mean([3, 4]).half(), 'n': x.sum([1, 2, 3, 4]).long()}",
            "ordered",
            ", fields: [tokens, n]",
            "features/tokens",
            at::kFloat,
            {12, 3, 3}},
           {"torch.avg_pool2d(x, 8)", "independent", "", "features/features", at::kFloat, {12, 3, 3, 2, 3}},
       }) {
    SCOPED_TRACE(row.result);
    Build(row.result, row.context, row.more);
    for (const bool whole : {true, false}) {
      if (!whole) RemoveSomeUnits();
      const auto features = Open();
      ASSERT_NE(features, nullptr);
      engine::TensorBatch batch = Batch(*features);
      const Status filled = features->Fill(&batch);
      ASSERT_TRUE(filled.ok()) << filled.ToString();
      ASSERT_EQ(batch[row.field].sizes().vec(), row.shape);
      EXPECT_EQ(batch[row.field].scalar_type(), row.type);
      EXPECT_FALSE(batch.fields.contains("features/cached"));
      const auto encoder = *ClipEncoder::Load(build.encoder, at::kCPU, source->fields()[0].shape);
      const bool independent = std::string(row.context) == "independent";
      for (int64_t i = 0; i < 12; ++i) {
        const at::Tensor clip = batch["frames"].narrow(0, i, 1);
        const at::Tensor live = (*encoder->Features(independent ? clip.flatten(0, 1) : clip))[0];
        EXPECT_TRUE(at::equal(batch[row.field][i], live.reshape(batch[row.field][i].sizes()).to(at::kFloat))) << i;
      }
      EXPECT_EQ(Metric(*features, "cache/damaged"), 0);
      EXPECT_EQ(Metric(*features, "cache/live") > 0, !whole);
      EXPECT_EQ(Metric(*features, "cache/misses") > 0, !whole);
      EXPECT_GT(Metric(*features, "cache/hits"), 0);
    }
  }
}

TEST_F(CachedFeaturesTest, WhatIsRequiredAndMissingIsAnError) {
  Build("x.mean([3, 4])", "ordered");
  RemoveSomeUnits();
  config.policy = "require";
  const auto features = Open();
  EXPECT_THAT(features->Coverage("training", *source, nullptr, build.clips).status().message(),
              HasSubstr("are not built yet"));
  engine::TensorBatch batch = Batch(*features);
  EXPECT_THAT(features->Fill(&batch).message(), HasSubstr("data.features.policy: require allows no live encoding"));
}

TEST_F(CachedFeaturesTest, OtherFeaturesAreNeverTaken) {
  Build("x.mean([3, 4])", "ordered");
  const auto says = [&](const std::vector<int64_t>& frames) {
    return CachedFeatures::Open(config, frames).status().message();
  };
  EXPECT_EQ(says({3, 3, 16, 24}), "");
  EXPECT_THAT(says({3, 3, 16, 16}), HasSubstr("has no features of"));
  torch::jit::Module other("Encoder");
  other.define("def forward(self, x):\n    return x.mean([3, 4]) * 2\n");
  other.save(dir / "encoder.pt");
  EXPECT_THAT(says({3, 3, 16, 24}), HasSubstr("has no features of"));
}

}  // namespace
}  // namespace lockstep::recipes
