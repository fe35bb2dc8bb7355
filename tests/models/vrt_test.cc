// VRT's configurations, counts, units and random numbers. Its function is tested by vrt_parity_test.cc.
#include "models/vrt.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "models/state_copy.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

int64_t Count(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

VrtConfig Tiny() {
  at::set_num_threads(1);
  VrtConfig config = *FindVrt("small");
  config.window_size = {2, 4, 4};
  config.img_size = {3, 32, 32};
  config.embed_dims = {8, 8, 8, 8, 8, 8, 8, 12, 12};
  config.num_heads.assign(9, 2);
  config.deformable_groups = 2;
  return config;
}

// Counts of upstream's code (tests/golden/vrt_upstream.py prints them).
TEST(Vrt, ShippedConfigurationsHaveUpstreamsParameterCounts) {
  const std::map<std::string, int64_t> expected = {
      {"001", 30676435}, {"002", 32577991}, {"003", 32577991}, {"004", 32577991}, {"005", 18320007},
      {"006", 18320007}, {"007", 18320007}, {"008", 18320871}, {"009", 9943387},  {"006-spike", 18327783}};
  for (const VrtConfig& config : VrtVariants()) {
    if (!expected.contains(config.name)) continue;  // small and tiny are ours alone
    EXPECT_TRUE(config.Check().ok()) << config.name;
    if (config.name == "003" || config.name == "005" || config.name == "007") continue;  // as 004 and 006
    EXPECT_EQ(Count(Vrt(config)), expected.at(config.name)) << config.name;
  }
  VrtConfig config = *FindVrt("006");
  config.in_chans = 7;
  EXPECT_EQ(Count(Vrt(config)), 18351111);
  EXPECT_EQ(Count(SpyNet()), 1440300);
}

TEST(Vrt, BadConfigurationsAreNamedWithTheRemedy) {
  struct Row {
    std::function<void(VrtConfig&)> spoil;
    const char* message;
  };
  const Row rows[] = {
      {[](VrtConfig& c) { c.num_heads[2] = 5; }, "num_heads[2] = 5 does not divide embed_dims[2] = 96"},
      {[](VrtConfig& c) { c.pa_frames = 3; }, "pa_frames is 3"},
      {[](VrtConfig& c) { c.deformable_groups = 7; }, "deformable_groups = 7"},
      {[](VrtConfig& c) { c.pa_frames = 4, c.deformable_groups = 3; }, "deformable_groups = 3 is odd"},
      {[](VrtConfig& c) { c.depths.pop_back(); }, "have 10, 11 and 11 entries"},
      {[](VrtConfig& c) { c.embed_dims[1] = 48; }, "embed_dims[1] = 48 and embed_dims[5] = 96 differ"},
      {[](VrtConfig& c) { c.embed_dims[9] = 96; }, "embed_dims[7] = 120 and embed_dims[9] = 96 differ"},
      {[](VrtConfig& c) { c.embed_dims[3] = 90; }, "embed_dims[3] = 90 is not a multiple of 4"},
      {[](VrtConfig& c) { c.img_size[1] = 188; }, "the height 188 is not a multiple of 8"},
      {[](VrtConfig& c) { c.img_size[2] = 56; }, "the width 56 is 7 at the smallest scale, less than the window's 8"},
      {[](VrtConfig& c) { c.in_chans = 1; }, "in_chans is 1"},
      {[](VrtConfig& c) { c.upscale = 5; }, "upscale is 5"},
      {[](VrtConfig& c) { c.indep_reconsts = {11}; }, "indep_reconsts names entry 11"},
      {[](VrtConfig& c) { c.drop_path_rate = 1; }, "drop_path_rate is 1"},
  };
  for (const Row& row : rows) {
    VrtConfig config = *FindVrt("006");
    row.spoil(config);
    EXPECT_THAT(config.Check().message(), HasSubstr(row.message));
    EXPECT_FALSE(config.Check().hint().empty()) << row.message;
    EXPECT_THROW(Vrt{config}, std::invalid_argument);
  }
  EXPECT_THAT(FindVrt("010").status().hint(), HasSubstr("001, 002"));
  VrtConfig six = *FindVrt("006");
  six.pa_frames = 6;
  EXPECT_THAT(six.CheckClip(3, 64, 64).message(), HasSubstr("takes 4 frames or more"));
  EXPECT_THAT(FindVrt("009")->CheckClip(6, 64, 64).message(), HasSubstr("img_size, 4"));
}

TEST(Vrt, AConfigurationSurvivesJson) {
  for (const VrtConfig& config : VrtVariants()) {
    const Result<VrtConfig> back = VrtFromJson(ToJson(config));
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_EQ(*back, config);
  }
  nlohmann::json json = ToJson(*FindVrt("006"));
  json["embed_dim"] = 3;
  EXPECT_THAT(VrtFromJson(json).status().message(), HasSubstr("embed_dims"));
  json.erase("embed_dim");
  json["depths"] = "8";
  EXPECT_THAT(VrtFromJson(json).status().message(), HasSubstr("depths is \"8\""));
}

TEST(Vrt, UnitsCoverTheBlocksOnceAndRecomputeAsTheOptionFileSays) {
  const Vrt model(*FindVrt("006"));
  std::set<std::string> seen;
  std::map<std::string, int> recomputed;
  const auto parameters = model.named_parameters();
  for (const vrt::Unit& unit : model.Units()) {
    for (const std::string& name : unit.parameters) {
      EXPECT_TRUE(parameters.contains(name)) << name;
      EXPECT_TRUE(seen.insert(name).second) << name << " is in two units";
    }
    if (unit.recompute) ++recomputed[unit.name.substr(0, unit.name.find(".blocks"))];
  }
  EXPECT_EQ(model.Units().size(), 2 * 72U);
  // no_checkpoint_attn_blocks [2,3,4], no_checkpoint_ffn_blocks [1,2,3,4,5,9].
  EXPECT_EQ(recomputed["stage1.residual_group1"], 12);
  EXPECT_EQ(recomputed["stage2.residual_group1"], 6);  // attention alone
  EXPECT_EQ(recomputed["stage3.residual_group1"], 0);
  EXPECT_EQ(recomputed["stage3.residual_group2"], 2);  // attention: always
  EXPECT_EQ(recomputed["stage7.residual_group2"], 4);
  EXPECT_EQ(recomputed["stage8.1.residual_group"], 8);  // entry 7
  EXPECT_EQ(recomputed["stage8.3.residual_group"], 4);  // entry 9: attention alone
}

TEST(Vrt, RunnersSeeEveryUnitOnceInOrder) {
  Vrt model(Tiny(), 4);
  model.eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor clips = at::rand({1, 3, 3, 32, 32}, at::make_generator<at::CPUGeneratorImpl>(1));
  const at::Tensor plain = model.Forward(clips);
  std::vector<size_t> order;
  model.RunUnits([&](size_t unit, const vrt::UnitForward& forward, const at::Tensor& input) {
    order.push_back(unit);
    EXPECT_TRUE(at::equal(forward(input), forward(input)));
    return forward(input);
  });
  EXPECT_TRUE(at::equal(model.Forward(clips), plain));
  ASSERT_EQ(order.size(), model.Units().size());
  for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

TEST(Vrt, DropPathComesFromGivenNumbersOrTheDefaultGeneratorAndOnlyInTraining) {
  VrtConfig config = Tiny();
  config.drop_path_rate = 0.5;
  Vrt model(config, 4);
  const torch::NoGradGuard no_grad;
  const at::Tensor clips = at::rand({2, 3, 3, 32, 32}, at::make_generator<at::CPUGeneratorImpl>(1));
  EXPECT_EQ(model.Draws(), 2 * (18 - 1 - 1));  // but for the first block of each group of the first stage
  torch::manual_seed(9);
  const at::Tensor first = model.Forward(clips);
  const at::Tensor second = model.Forward(clips);
  EXPECT_FALSE(at::equal(first, second));
  torch::manual_seed(9);
  EXPECT_TRUE(at::equal(model.Forward(clips), first));
  torch::manual_seed(9);
  const at::Tensor draws = at::rand({2, model.Draws()});
  EXPECT_TRUE(at::equal(model.Forward(clips, draws), first));
  // A sample's result is a function of its own numbers.
  const at::Tensor alone = model.Forward(clips.narrow(0, 1, 1), draws.narrow(0, 1, 1));
  EXPECT_TRUE(at::allclose(alone[0], first[1], 1e-4, 1e-5));
  model.eval();
  EXPECT_TRUE(at::equal(model.Forward(clips), model.Forward(clips, draws)));
}

TEST(Vrt, TheResultIsAddedToTheClipOrToOtherFrames) {
  for (const int64_t upscale : {1, 2}) {
    VrtConfig config = Tiny();
    config.upscale = upscale;
    Vrt model(config, 4);
    model.eval();
    const torch::NoGradGuard no_grad;
    const at::Tensor clips = at::rand({1, 3, 3, 32, 32}), base = at::rand({1, 3, 3, 32, 32});
    const auto enlarged = [&](const at::Tensor& x) {
      return at::upsample_bilinear2d(x.flatten(0, 1), {32 * upscale, 32 * upscale}, false).unsqueeze(0);
    };
    const at::Tensor other = model.Forward(clips, {}, base) - enlarged(base);
    EXPECT_TRUE(at::allclose(other, model.Forward(clips) - enlarged(clips), 1e-4, 1e-5)) << upscale;
    EXPECT_THROW(model.Forward(clips, {}, base.narrow(1, 0, 2)), c10::Error);
  }
}

// As S-VRT: the mean of RGB is added to what is made of all channels.
TEST(Vrt, InterpolationFromFurtherChannelsGivesRgb) {
  VrtConfig config = Tiny();
  config.pa_frames = 0;
  config.in_chans = 5;
  Vrt model(config, 4);
  model.eval();
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(model.Forward(at::rand({1, 3, 5, 32, 32})).sizes(), (at::IntArrayRef{1, 1, 3, 32, 32}));
}

TEST(Vrt, RunsUnderAutocastCloseToFloat32) {
  VrtConfig config = Tiny();
  config.drop_path_rate = 0.2;
  Vrt model(config, 4);
  const at::Tensor clips = at::rand({1, 3, 3, 32, 32}, at::make_generator<at::CPUGeneratorImpl>(1));
  const at::Tensor draws = at::rand({1, model.Draws()});
  const at::Tensor expected = model.Forward(clips, draws);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor out = model.Forward(clips, draws);
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_LT((out - expected).abs().max().item<double>(), 0.05);
  EXPECT_FALSE(at::equal(out, expected));
  out.sum().backward();
  for (const auto& item : model.named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(Vrt, LoraBeginsAsTheModelTrainsAloneAndMerges) {
  Vrt model(Tiny(), 4);
  model.eval();
  const at::Tensor clips = at::rand({1, 3, 3, 32, 32}, at::make_generator<at::CPUGeneratorImpl>(1));
  const at::Tensor before = model.Forward(clips);
  LoraConfig lora{.rank = 2, .alpha = 4, .targets = {"*.qkv_*.weight", "*.proj.weight"}};
  ASSERT_TRUE(model.AddLora(lora).ok());
  EXPECT_TRUE(at::equal(model.Forward(clips), before));
  for (const auto& item : model.named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(), item.key().find(".lora_") != std::string::npos) << item.key();
  }
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : model.named_parameters()) {
      if (item.key().ends_with(".lora_B")) item.value().normal_(0, 0.3);
    }
  }
  const at::Tensor after = model.Forward(clips);
  EXPECT_FALSE(at::allclose(after, before, 1e-3, 1e-4));
  Vrt merged(Tiny(), 5);
  merged.eval();
  ASSERT_TRUE(LoadWeights(merged, model.Merged()).ok());
  EXPECT_TRUE(at::allclose(merged.Forward(clips), after, 1e-4, 1e-5));
  Vrt other(Tiny(), 4);
  lora.targets = {"*.qvk_self.weight"};
  EXPECT_THAT(other.AddLora(lora).message(), HasSubstr("qkv_self"));
}

}  // namespace
}  // namespace lockstep::models
