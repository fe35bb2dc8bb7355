#include "recipes/vrt.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "base/files.h"
#include "base/safetensors.h"
#include "models/vrt_file.h"

namespace lockstep::recipes {
namespace {

using testing::HasSubstr;

using Change = std::function<void(VrtRecipe&)>;

Status Configure(VrtRecipe& recipe, engine::Config* config, const Change& change) {
  recipe.settings().model = "tiny";
  recipe.Defaults(config);
  if (change) change(recipe);
  return recipe.Check(config);
}

void UseSpikes(VrtRecipe& recipe, const std::string& fusion, int channels = 2) {
  recipe.data().train.spikes.use = true;
  recipe.data().train.spikes.form.channels = channels;
  recipe.settings().fusion_operator = fusion;
}

engine::TensorBatch BatchFor(VrtRecipe& recipe, int64_t count) {
  const data::PairedConfig& data = recipe.data().train;
  const int64_t side = data.crop / data.scale;
  at::manual_seed(1);
  const auto bytes = [&](int64_t channels, int64_t size) {
    return at::randint(0, 256, {count, data.frames, channels, size, size}, at::kByte);
  };
  engine::TensorBatch batch;
  batch.fields = {{"input", bytes(3, side)}, {"target", bytes(3, data.crop)}};
  if (data.interpolate) batch.fields["target"] = batch.fields["target"].narrow(1, 0, 1);
  if (data.spikes.use) batch.fields["spikes"] = bytes(data.spikes.form.channels, side);
  for (int64_t i = 0; i < count; ++i) {
    batch.ids.push_back({.index = static_cast<uint64_t>(i)});
    batch.lanes.push_back(static_cast<uint64_t>(i));
  }
  return batch;
}

struct Case {
  const char* name;
  Change change;
};

TEST(VrtRecipe, EveryTaskAndFusionTrainsAllParametersAndIsScored) {
  const Case cases[] = {
      {"concat", [](VrtRecipe& r) { UseSpikes(r, "concat"); }},
      {"gated, expanded", [](VrtRecipe& r) { UseSpikes(r, "gated"); }},
      {"attention, collapsed, own loss",
       [](VrtRecipe& r) {
         UseSpikes(r, "attention");
         r.settings().fusion.frame_contract = "collapsed";
         r.settings().fused_loss = 0.2;
       }},
      {"denoise", [](VrtRecipe& r) { r.settings().task = "denoise", r.settings().nonblind_denoising = true; }},
      {"LoRA", [](VrtRecipe& r) { r.settings().lora = {.rank = 2, .alpha = 4, .targets = {"*qkv*", "*proj*"}}; }},
      {"interpolation",
       [](VrtRecipe& r) {
         r.settings().task = "interpolate";
         r.data().train.interpolate = true;
       }},
      {"twice the size",
       [](VrtRecipe& r) {
         r.settings().upscale = r.data().train.scale = 2;
         r.data().train.crop = 128;
       }},
  };
  at::set_num_threads(1);  // others work beside it
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    VrtRecipe recipe;
    engine::Config config;
    const Status checked = Configure(recipe, &config, one.change);
    ASSERT_TRUE(checked.ok()) << checked.message();
    ASSERT_TRUE(recipe.Build(config, 3).ok());
    engine::TensorBatch batch = BatchFor(recipe, 1), none = BatchFor(recipe, 0);
    ASSERT_TRUE(recipe.Prepare({}, &batch).ok());
    EXPECT_TRUE(recipe.Prepare({}, &none).ok()) << "a rank without samples of a smaller last batch";
    recipe.model().train();
    const engine::Loss loss = recipe.ComputeLoss(batch);
    loss.mean.backward();
    EXPECT_TRUE(loss.mean.isfinite().item<bool>());
    for (const auto& item : recipe.model().named_parameters()) {
      EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
    }
    recipe.model().eval();
    const at::NoGradGuard no_grad;
    EXPECT_GT(recipe.ComputeValidationLoss(batch).mean.item<double>(), 0);
    std::vector<std::string> names;
    for (const engine::Score& score : recipe.Validate(batch)) names.push_back(score.name);
    EXPECT_EQ(names, recipe.Scores());
  }
}

// As S-VRT: a VRT that gives nothing leaves the blurred frames as they are, whatever the adapter made of them.
TEST(VrtRecipe, WhatVrtGivesIsAddedToRgbAndNotToWhatTheAdapterGives) {
  for (const char* fusion : {"gated", "pase_residual"}) {
    VrtRecipe recipe;
    engine::Config config;
    ASSERT_TRUE(Configure(recipe, &config, [&](VrtRecipe& r) { UseSpikes(r, fusion); }).ok());
    ASSERT_TRUE(recipe.Build(config, 3).ok());
    const at::NoGradGuard no_grad;
    for (auto& item : recipe.model().named_parameters()) {
      if (item.key().starts_with("conv_last.")) item.value().zero_();
      if (item.key().starts_with("fusion_adapter.")) item.value().normal_(0, 0.3);
    }
    recipe.model().eval();
    const std::vector<engine::Score> scores = recipe.Validate(BatchFor(recipe, 1));
    ASSERT_EQ(scores.front().name, "psnr");
    ASSERT_EQ(scores.back().name, "psnr_input");
    EXPECT_NEAR(scores.front().sum, scores.back().sum, 1e-6) << fusion;
  }
}

TEST(VrtRecipe, WhatIsDrawnFollowsThePlaceInTheBatchAlone) {
  VrtRecipe recipe;
  engine::Config config;
  ASSERT_TRUE(Configure(recipe, &config, [](VrtRecipe& r) { r.settings().task = "denoise"; }).ok());
  ASSERT_TRUE(recipe.Build(config, 3).ok());
  engine::TensorBatch whole = BatchFor(recipe, 2), half = BatchFor(recipe, 1), next = whole;
  half.lanes = {1};
  ASSERT_TRUE(recipe.Prepare({.step = 5}, &whole).ok());
  ASSERT_TRUE(recipe.Prepare({.step = 5}, &half).ok());
  ASSERT_TRUE(recipe.Prepare({.step = 6}, &next).ok());
  for (const char* field : {"path_draws", "noise", "noise_level"}) {
    EXPECT_TRUE(at::equal(whole[field][1], half[field][0])) << field;
    EXPECT_FALSE(at::equal(whole[field][0], whole[field][1])) << field;
    EXPECT_FALSE(at::equal(whole[field], next[field])) << field;
  }
}

TEST(VrtRecipe, WhatCannotBeTrainedIsRefused) {
  const struct {
    const char* expected;
    Change change;
  } cases[] = {
      {"recipe.in_channels is 3, and the data have 5 channels",
       [](VrtRecipe& r) { UseSpikes(r, "concat"), r.settings().in_channels = 3; }},
      {"data.spikes.use is false", [](VrtRecipe& r) { r.settings().fusion_operator = "gated"; }},
      {"recipe.task is restore and recipe.pa_frames 0", [](VrtRecipe& r) { r.settings().pa_frames = 0; }},
      {"recipe.task is interpolate and recipe.pa_frames 2",
       [](VrtRecipe& r) { r.settings().task = "interpolate", r.settings().pa_frames = 2; }},
      {"it takes RGB alone", [](VrtRecipe& r) { UseSpikes(r, "gated"), r.settings().task = "interpolate"; }},
      {"has no SpyNet", [](VrtRecipe& r) { r.settings().task = "interpolate", r.settings().spynet = "spynet.pth"; }},
      {"needs recipe.task: denoise", [](VrtRecipe& r) { r.settings().nonblind_denoising = true; }},
      {"data.scale is 1 and recipe.upscale 4", [](VrtRecipe& r) { r.settings().upscale = 4; }},
      {"recipe.test.tile", [](VrtRecipe& r) { r.settings().test.tile = 100; }},
      {"data.frames, data.crop", [](VrtRecipe& r) { r.data().train.crop = 40; }},
      {"heads", [](VrtRecipe& r) { r.settings().heads = std::vector<int64_t>(8, 3); }},
  };
  for (const auto& one : cases) {
    VrtRecipe recipe;
    engine::Config config;
    const Status checked = Configure(recipe, &config, one.change);
    EXPECT_FALSE(checked.ok()) << one.expected;
    EXPECT_THAT(checked.message(), HasSubstr(one.expected));
  }
  VrtRecipe recipe;
  engine::Config config;
  config.train.parameters = at::kBFloat16;
  EXPECT_THAT(Configure(recipe, &config, {}).message(), HasSubstr("train.parameters is bf16"));
}

// S-VRT's first phase: VRT is not computed, and the weight of the distance from the input fades with the steps.
TEST(VrtRecipe, TheAdapterAloneIsTrainedByItsOwnLosses) {
  VrtRecipe recipe;
  engine::Config config;
  ASSERT_TRUE(Configure(recipe, &config, [](VrtRecipe& r) {
                UseSpikes(r, "pase_residual");
                VrtSettings& s = r.settings();
                s.restored_loss = false, s.fused_loss = 1, s.passthrough = 0.4, s.passthrough_steps = 5;
                s.update_penalty = 0.01, s.loss = "l1";
              }).ok());
  ASSERT_TRUE(recipe.Build(config, 3).ok());
  const auto loss_at = [&](uint64_t since) {
    engine::TensorBatch batch = BatchFor(recipe, 2);
    EXPECT_TRUE(recipe.Prepare({.step = 100 + since, .since = since}, &batch).ok());
    return recipe.ComputeLoss(batch).mean;
  };
  const at::Tensor first = loss_at(0), middle = loss_at(2), last = loss_at(4), after = loss_at(9);
  EXPECT_NEAR((first - last).item<double>(), 2 * (first - middle).item<double>(), 1e-6);
  EXPECT_GT((first - last).item<double>(), 0);
  EXPECT_EQ(last.item<double>(), after.item<double>());
  first.backward();
  for (const auto& item : recipe.model().named_parameters()) {
    if (item.key().find("spike_upsample") != std::string::npos) continue;
    EXPECT_EQ(item.value().grad().defined(), item.key().starts_with(kAdapter)) << item.key();
  }
}

// As KAIR, which reads SpyNet's file before the others.
TEST(VrtRecipe, PartialWeightsWithoutSpyNetLeaveItToItsOwnFile) {
  models::Vrt other(*models::FindVrt("tiny"), 9);
  models::NamedTensors rest;
  std::vector<TensorSpec> specs;
  for (const auto& item : other.spynet().named_parameters()) {
    specs.push_back({item.key(), Dtype::kF32, item.value().sizes().vec()});
  }
  for (const auto& item : other.named_parameters()) {
    if (!item.key().starts_with("spynet.")) rest.emplace_back(item.key(), item.value().detach());
  }
  const Result<TempDir> dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  const std::string file = *dir / "spynet.safetensors";
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(file, specs, {});
  ASSERT_TRUE(writer.ok());
  for (const auto& item : other.spynet().named_parameters()) {
    ASSERT_TRUE(writer->Write(item.key(), item.value().data_ptr(), item.value().nbytes()).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  VrtRecipe recipe;
  engine::Config config;
  config.checkpoint.weights = "rest.pth";
  const Status checked =
      Configure(recipe, &config, [&](VrtRecipe& r) { r.settings().spynet = file, r.settings().partial = true; });
  ASSERT_TRUE(checked.ok()) << checked.message();
  ASSERT_TRUE(recipe.Build(config, 3).ok());
  const Status loaded = recipe.LoadWeights(rest, "rest.pth");
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  const auto parameters = recipe.model().named_parameters();
  for (const auto& item : other.named_parameters()) {
    EXPECT_TRUE(at::equal(parameters[item.key()], item.value())) << item.key();
  }
}

}  // namespace
}  // namespace lockstep::recipes
