// TAEHV's table of variants, names, frame arithmetic and weights; its numbers against an independent implementation
// (tests/golden/taehv.py).
#include "models/taehv.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "golden/golden.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

int64_t Count(const torch::nn::Module& module, const std::string& prefix = "") {
  int64_t count = 0;
  for (const auto& item : module.named_parameters()) {
    if (item.key().starts_with(prefix)) count += item.value().numel();
  }
  return count;
}

TaehvConfig Tiny() {
  at::set_num_threads(1);  // too small to share out, and on a busy machine threads wait for each other
  return {.name = "tiny", .latent = 4, .encoder_width = {8, 8, 8, 8}, .decoder_width = {12, 8, 8, 8}};
}

at::Tensor Noise(at::IntArrayRef sizes, uint64_t seed = 1) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed));
}

TEST(Taehv, EveryVariantHasUpstreamsParameterCount) {
  const std::map<std::string, int64_t> expected = {
      {"taehv", 11315539},     {"taew2_1", 11315539},        {"taeos1_3", 11315539},      {"taecvx", 11315539},
      {"taehv1_5", 11372012},  {"taew2_2", 11418108},        {"taeh3", 11348964},         {"taeltx_2", 11759728},
      {"taeltx2_3", 11759728}, {"taehv1_5_super", 20470572}, {"taew2_2_super", 20487996}, {"taehv_super", 20442771}};
  for (const auto& [name, count] : expected) EXPECT_EQ(Count(Taehv(*FindTaehv(name), 1)), count) << name;
  Taehv model(*FindTaehv("taehv"), 1);
  EXPECT_EQ(Count(model, "encoder."), 1470928);
  EXPECT_EQ(Count(model, "decoder."), 9844611);
  EXPECT_LT(Count(Taehv(*FindTaehv("taehv-small"), 1)), 1000000);
}

TEST(Taehv, AnUnknownVariantIsRefusedWithTheNamesThatExist) {
  auto found = FindTaehv("taehv2");
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.status().ToString(), HasSubstr("'taehv2'"));
  EXPECT_THAT(found.status().hint(), HasSubstr("taehv-small"));
}

// Tensors are named as in the golden file, whose names come from PyTorch's numbering of nn.Sequential.
TEST(Taehv, StateDictNamesAndOrderAreUpstreams) {
  Taehv model(Tiny(), 1);
  std::set<std::string> names, expected;
  for (const auto& [name, tensor] : StateDict(model)) names.insert(name);
  for (const auto& [name, tensor] : golden::Tensors("taehv_tiny")) {
    if (name.starts_with("start.")) expected.insert(name.substr(6));
  }
  EXPECT_EQ(names, expected);
  EXPECT_TRUE(names.contains("encoder.4.conv.0.weight"));
  EXPECT_TRUE(names.contains("decoder.22.bias"));
}

TEST(Taehv, TheSeedGivesTheBitsOfPyTorchsManualSeed) {
  auto expected = golden::Tensors("taehv_tiny");
  auto same = [&](Taehv& model) {
    int same = 0;
    for (const auto& [name, tensor] : StateDict(model)) {
      at::Tensor found = golden::Digest(tensor).to(at::kFloat).narrow(0, 1, 8);
      same += at::equal(found, expected.at("drawn." + name).narrow(0, 1, 8)) ? 1 : 0;
    }
    return same;
  };
  Taehv model(Tiny(), 7), other(Tiny(), 8);
  EXPECT_EQ(same(model), static_cast<int>(StateDict(model).size()));
  EXPECT_EQ(same(other), 0);
}

// Whole tensors of a tiny net, and digests of the small variant.
class TaehvParity : public testing::TestWithParam<const char*> {};

TEST_P(TaehvParity, ForwardLossAndGradientsAreThoseOfPyTorch) {
  auto doc = golden::Json(GetParam());
  auto expected = golden::Tensors(GetParam());
  bool whole = doc["whole"];
  Taehv model(whole ? Tiny() : *FindTaehv("taehv-small"), doc["seed"]);
  model.StartNearIdentity();
  auto check = [&](const std::string& kind, const std::string& name, const at::Tensor& found) {
    bool digest = !whole && kind != name;
    EXPECT_LT(golden::Distance(digest ? golden::Digest(found) : found, expected.at(name)),
              golden::Allowed(doc["noise"][kind]))
        << name;
  };
  for (const auto& [name, tensor] : StateDict(model)) check("start", "start." + name, tensor);
  at::Tensor frames = expected.at("frames");
  at::Tensor latents = model.Encode(frames), decoded = model.Decode(latents);
  check("latents", "latents", latents);
  check("decoded", "decoded", decoded);
  at::Tensor loss = at::mse_loss(decoded, model.Target(frames));
  EXPECT_NEAR(loss.item<double>() / doc["loss"][0].get<double>(), 1, golden::Allowed(doc["noise"]["loss"]));
  loss.backward();
  for (const auto& item : model.named_parameters()) check("gradient", "gradient." + item.key(), item.value().grad());
}

INSTANTIATE_TEST_SUITE_P(Goldens, TaehvParity, testing::Values("taehv_tiny", "taehv_small"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Taehv, FramesInAndOutFollowUpstreamsRule) {
  struct Row {
    const char* variant;
    int64_t in, latents, out;
  };
  at::set_num_threads(1);
  for (const Row& row :
       {Row{"taehv", 1, 1, 1}, Row{"taehv", 4, 1, 1}, Row{"taehv", 5, 2, 5}, Row{"taehv", 12, 3, 9},
        Row{"taehv", 13, 4, 13}, Row{"taehv", 19, 5, 17}, Row{"taecvx", 8, 2, 8}, Row{"taecvx", 5, 2, 8},
        Row{"taecvx", 12, 3, 9}, Row{"taeltx_2", 17, 3, 17}, Row{"taeltx_2", 16, 2, 9}, Row{"taeh3", 17, 2, 5},
        Row{"taeh3", 34, 7, 22}, Row{"taeh3", 18, 7, 22}}) {
    TaehvConfig config = *FindTaehv(row.variant);
    EXPECT_EQ(config.Latents(row.in), row.latents) << row.variant << " " << row.in;
    EXPECT_EQ(config.FramesOut(row.in), row.out) << row.variant << " " << row.in;
    config.encoder_width = {4, 4, 4, 4};
    config.decoder_width = {4, 4, 4, 4};
    torch::NoGradGuard no_grad;
    Taehv model(config, 1);
    at::Tensor frames = Noise({2, row.in, 3, config.SpaceDown(), 2 * config.SpaceDown()});
    at::Tensor latents = model.Encode(frames), decoded = model.Decode(latents);
    EXPECT_EQ(latents.sizes(), at::IntArrayRef({2, row.latents, config.latent, 1, 2}));
    EXPECT_EQ(decoded.sizes(), model.Target(frames).sizes()) << row.variant << " " << row.in;
    int64_t same = std::min(row.in, row.out);
    EXPECT_TRUE(at::equal(model.Target(frames).narrow(1, 0, same), frames.narrow(1, 0, same)));
  }
}

// Frames after the one looked at, and other clips of the batch, have no influence: memory is causal and per clip.
TEST(Taehv, NoClipSeesAnotherAndNoLatentSeesTheFuture) {
  torch::NoGradGuard no_grad;
  Taehv model(Tiny(), 3);
  model.StartNearIdentity();
  at::Tensor frames = Noise({2, 12, 3, 16, 16});
  at::Tensor alone = model.Encode(frames.narrow(0, 1, 1)), both = model.Encode(frames);
  EXPECT_LT(golden::Distance(both.narrow(0, 1, 1), alone), 1e-6);
  at::Tensor later = frames.clone();
  later.narrow(1, 8, 4).fill_(0.1);
  at::Tensor changed = model.Encode(later);
  EXPECT_TRUE(at::equal(changed.narrow(1, 0, 2), both.narrow(1, 0, 2)));
  EXPECT_FALSE(at::equal(changed.narrow(1, 2, 1), both.narrow(1, 2, 1)));
  at::Tensor earlier = frames.clone();
  earlier.narrow(1, 0, 4).fill_(0.1);  // the memory reaches forward
  EXPECT_FALSE(at::equal(model.Encode(earlier).narrow(1, 1, 1), both.narrow(1, 1, 1)));
}

TEST(Taehv, OutputIsClampedUnlessAskedForRaw) {
  Taehv model(Tiny(), 3);
  model.SetOutputBias(5);
  at::Tensor latents = Noise({1, 2, 4, 2, 2});
  at::Tensor clamped = model.Decode(latents), raw = model.Decode(latents, /*clamp=*/false);
  EXPECT_EQ(clamped.max().item<float>(), 1);
  EXPECT_GT(raw.min().item<float>(), 1);
  clamped.sum().backward();
  EXPECT_EQ(model.named_parameters()["decoder.22.bias"].grad().abs().sum().item<float>(), 0);
}

TEST(Taehv, NearIdentityBeginsAsACoarseCopy) {
  torch::NoGradGuard no_grad;
  Taehv usual(*FindTaehv("taehv-small"), 1), copying(*FindTaehv("taehv-small"), 1);
  copying.StartNearIdentity();
  at::Tensor dark = at::full({1, 5, 3, 32, 32}, 0.2), light = at::full({1, 5, 3, 32, 32}, 0.8);
  auto change = [&](Taehv& model) {
    return (model.Decode(model.Encode(light), false) - model.Decode(model.Encode(dark), false))
        .abs()
        .mean()
        .item<float>();
  };
  EXPECT_LT(change(usual), 0.01);  // the input does not come through
  EXPECT_GT(change(copying), 0.2);
}

TEST(Taehv, NearIdentityPassesThroughTheWideDecoderToo) {
  torch::NoGradGuard no_grad;
  Taehv usual(*FindTaehv("taehv-small_super"), 1), copying(*FindTaehv("taehv-small_super"), 1);
  copying.StartNearIdentity();
  at::Tensor dark = at::full({1, 5, 3, 32, 32}, 0.2), light = at::full({1, 5, 3, 32, 32}, 0.8);
  auto change = [&](Taehv& model) {
    at::Tensor step = model.Decode(model.Encode(light), false) - model.Decode(model.Encode(dark), false);
    return step.abs().mean().item<float>();
  };
  EXPECT_LT(change(usual), 0.01);
  EXPECT_GT(change(copying), 0.2);
}

TEST(Taehv, WrapSeesSixStagesAndChangesNothing) {
  Taehv model(Tiny(), 3);
  at::Tensor frames = Noise({2, 5, 3, 16, 16});
  at::Tensor plain = model.Decode(model.Encode(frames));
  int stages = 0;
  model.SetWrap([&](size_t, const Taehv::Stage& stage, const at::Tensor& x) { return ++stages, stage(x); });
  EXPECT_TRUE(at::equal(model.Decode(model.Encode(frames)), plain));
  EXPECT_EQ(stages, 6);
}

TEST(Taehv, RunsUnderAutocastAndStaysClose) {
  torch::NoGradGuard no_grad;
  Taehv model(Tiny(), 3);
  model.StartNearIdentity();
  at::Tensor frames = Noise({2, 5, 3, 16, 16});
  at::Tensor plain = model.Decode(model.Encode(frames));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::Tensor half = model.Decode(model.Encode(frames));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(half.scalar_type(), at::kBFloat16);
  double distance = golden::Distance(half, plain);
  EXPECT_GT(distance, 0);
  EXPECT_LT(distance, 0.05);  // bf16 has 8 bits: 0.004 per rounding, some forty of them
}

TEST(Taehv, SizesThatDoNotComeBackAreRefusedWithTheNearest) {
  TaehvConfig config = *FindTaehv("taehv1_5");
  EXPECT_TRUE(config.Check(12, 64, 48).ok());
  Status bad = config.Check(12, 70, 48);
  EXPECT_THAT(bad.message(), HasSubstr("multiples of 16"));
  EXPECT_THAT(bad.hint(), HasSubstr("64x48"));
  EXPECT_FALSE(config.Check(0, 64, 64).ok());
}

TEST(Taehv, InputOfAnotherShapeSaysWhatIsExpected) {
  Taehv model(Tiny(), 3);
  try {
    model.Encode(at::zeros({1, 3, 16, 16}));
    FAIL() << "took four dimensions";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("(clips, frames, 3, height, width)"));
  }
}

}  // namespace
}  // namespace lockstep::models
