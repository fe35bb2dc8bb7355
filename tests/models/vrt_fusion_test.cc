// Fusion of RGB and spikes: operators against an independent implementation (tests/golden/vrt_fusion.py), frame
// contracts, warm-up and refusals.
#include "models/vrt_fusion.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "golden/golden.h"
#include "models/normal.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

FusionConfig SmallFusion(const std::string& op) {
  at::set_num_threads(1);
  return {.op = op,
          .spike_bins = 3,
          .hidden_chans = 6,
          .feature_chans = 5,
          .token_dim = 8,
          .num_layers = 2,
          .num_heads = 2};
}

at::Tensor Drawn(const std::string& name, at::IntArrayRef shape) {
  at::Tensor out = at::empty(shape);
  DrawUniform(5, name, 0, 0.5, out.view({-1}));
  return out + 0.5;
}

class FusionGolden : public testing::TestWithParam<const char*> {};

TEST_P(FusionGolden, OutputsAndGradientsAreThoseOfPyTorch) {
  const nlohmann::json row = golden::Json("vrt_fusion")[GetParam()];
  auto expected = golden::Tensors("vrt_fusion");
  FusionAdapter adapter(SmallFusion(GetParam()));
  std::map<std::string, at::Tensor> own;  // of the operator
  for (const auto& item : adapter.named_parameters()) {
    if (!item.key().starts_with("operator.")) continue;
    const std::string name = item.key().substr(9);
    own[name] = item.value();
    const torch::NoGradGuard no_grad;
    DrawUniform(5, name, 0, 0.3, item.value().view({-1}));
    if (name.find(".norm") != std::string::npos && name.ends_with("weight")) item.value().add_(1);
  }
  std::vector<std::string> names;
  for (const auto& [name, tensor] : own) names.push_back(name);
  EXPECT_EQ(names, row["names"].get<std::vector<std::string>>());
  const at::Tensor out = adapter.Forward(Drawn("rgb", {1, 2, 3, 8, 12}), Drawn("spikes", {1, 2, 3, 8, 12}));
  const at::Tensor flat = out.flatten(0, 1);
  EXPECT_LT(golden::Distance(flat, expected.at(std::string(GetParam()) + ".output")), golden::Allowed(row["output"]));
  (flat * at::cos(at::arange(flat.numel(), at::kDouble)).to(at::kFloat).view(flat.sizes())).sum().backward();
  std::vector<at::Tensor> norms;
  for (const auto& [name, tensor] : own) norms.push_back(tensor.grad().norm());
  EXPECT_LT(golden::Distance(at::stack(norms), expected.at(std::string(GetParam()) + ".norms")),
            10 * golden::Allowed(row["gradient"]));
}

INSTANTIATE_TEST_SUITE_P(Operators, FusionGolden,
                         testing::Values("concat", "gated", "pase", "pase_residual", "attention"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Fusion, FrameContractsSayHowManyFramesVrtSees) {
  const at::Tensor rgb = Drawn("rgb", {2, 4, 3, 8, 8}), spikes = Drawn("spikes", {2, 4, 3, 8, 8});
  FusionConfig config = SmallFusion("gated");
  FusionAdapter expanded(config, 1);
  EXPECT_EQ(config.BackboneFrames(4), 12);
  const at::Tensor wide = expanded.Forward(rgb, spikes);
  EXPECT_EQ(wide.sizes(), (at::IntArrayRef{2, 12, 3, 8, 8}));
  // Gated begins as the identity: frame t is repeated for its bins.
  EXPECT_TRUE(at::equal(wide, rgb.repeat_interleave(3, 1)));
  EXPECT_TRUE(at::equal(expanded.Reduce(wide), rgb));
  EXPECT_TRUE(at::equal(expanded.Base(rgb), wide));
  const at::Tensor numbered = at::arange(12).view({1, 12, 1, 1, 1}).to(at::kFloat);
  EXPECT_TRUE(at::equal(expanded.Middle(numbered), at::tensor({1.0F, 4.0F, 7.0F, 10.0F}).view({1, 4, 1, 1, 1})));
  config.reduce_index = 7;  // the last one
  EXPECT_TRUE(at::equal(FusionAdapter(config, 1).Reduce(numbered),
                        at::tensor({2.0F, 5.0F, 8.0F, 11.0F}).view({1, 4, 1, 1, 1})));
  FusionAdapter collapsed(SmallFusion("pase_residual"), 1);
  const at::Tensor same = collapsed.Forward(rgb, spikes);
  EXPECT_EQ(same.sizes(), rgb.sizes());
  EXPECT_LT((same - rgb).abs().max().item<double>(), 0.01);  // begins near the identity
  EXPECT_TRUE(at::equal(collapsed.Reduce(same), same));
  EXPECT_TRUE(at::equal(collapsed.Middle(same), same));
  EXPECT_TRUE(at::equal(collapsed.Base(rgb), rgb));
  // Spikes of a smaller sensor are enlarged.
  EXPECT_EQ(collapsed.Forward(rgb, Drawn("spikes", {2, 4, 3, 4, 4})).sizes(), rgb.sizes());
  EXPECT_THROW(collapsed.Forward(rgb, spikes.narrow(2, 0, 2)), c10::Error);
}

// Of PyTorch's MultiheadAttention: uniform up to sqrt(6 / (fan_in + fan_out)), no bias.
TEST(Fusion, AttentionBeginsAsMultiheadAttention) {
  const FusionAdapter adapter(SmallFusion("attention"), 1);
  const auto parameters = adapter.named_parameters();
  const double most = std::sqrt(6.0 / (8 + 24));
  const double largest = parameters["operator.attention_token_mixer.0.attn.in_proj_weight"].abs().max().item<double>();
  EXPECT_GT(largest, 0.95 * most);
  EXPECT_LE(largest, most);
  EXPECT_EQ(parameters["operator.attention_token_mixer.0.attn.in_proj_bias"].abs().max().item<double>(), 0);
}

TEST(Fusion, WarmUpTrainsTheHeadThenTheOperatorThenEverything) {
  const FusionWarmupPlan plan{.head_only_iters = 800, .fix_iter = 20000};
  EXPECT_EQ(FusionWarmupAt(plan, 799), FusionWarmup::kWritebackOnly);
  EXPECT_EQ(FusionWarmupAt(plan, 800), FusionWarmup::kTokenMixer);
  EXPECT_EQ(FusionWarmupAt(plan, 19999), FusionWarmup::kTokenMixer);
  EXPECT_EQ(FusionWarmupAt(plan, 20000), FusionWarmup::kFull);
  EXPECT_EQ(FusionWarmupAt({}, 0), FusionWarmup::kFull);
  const FusionConfig attention = SmallFusion("attention");
  const auto head = [&](const char* name) { return TrainsInWarmup(attention, FusionWarmup::kWritebackOnly, name); };
  EXPECT_TRUE(head("fusion_adapter.operator.fusion_writeback_head.gate.bias"));
  EXPECT_TRUE(head("fusion_adapter.operator.alpha"));
  EXPECT_FALSE(head("fusion_adapter.operator.attention_token_mixer.0.norm1.weight"));
  EXPECT_TRUE(head("stage1.linear1.weight"));  // other parameters: fix_keys
  EXPECT_TRUE(
      TrainsInWarmup(attention, FusionWarmup::kTokenMixer, "fusion_adapter.operator.rgb_context_encoder.0.bias"));
  EXPECT_TRUE(
      TrainsInWarmup(SmallFusion("gated"), FusionWarmup::kWritebackOnly, "fusion_adapter.operator.gate.0.bias"));
}

TEST(Fusion, WhatIsNotHereIsRefusedByNameWithWhatToUse) {
  struct Row {
    const char *kind, *name, *hint;
  };
  for (const Row& row : {Row{"fusion operator", "mamba", "use attention"},
                         Row{"fusion operator", "dual_scale_temporal_mamba", "use attention, or pase_residual"},
                         Row{"deformable convolution", "DCNv4", "use dcnv2"},
                         Row{"optical flow", "SCFlow", "use spynet"}, Row{"optical flow", "SEA-RAFT", "use spynet"}}) {
    const Status status = CheckSvrtOperator(row.kind, row.name);
    EXPECT_THAT(status.message(), HasSubstr(row.name));
    EXPECT_THAT(status.message(), HasSubstr("not supported"));
    EXPECT_THAT(status.hint(), HasSubstr(row.hint));
  }
  EXPECT_TRUE(CheckSvrtOperator("optical flow", "spynet").ok());
  EXPECT_THAT(CheckSvrtOperator("fusion operator", "gatde").message(), HasSubstr("gated"));
  FusionConfig config = SmallFusion("gated");
  config.frame_contract = "collapsed";
  EXPECT_THAT(config.Check().message(), HasSubstr("cannot be collapsed"));
  config = SmallFusion("pase");
  config.placement = "middle";
  EXPECT_THAT(config.Check().hint(), HasSubstr("use early"));
  config = SmallFusion("attention");
  config.num_heads = 3;
  EXPECT_THAT(config.Check().message(), HasSubstr("num_heads = 3 does not divide token_dim = 8"));
}

}  // namespace
}  // namespace lockstep::models
