// VRT's weight files: both formats, wrapped and bare, and what does not fit.
#include "models/vrt_file.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/files.h"
#include "models/state_copy.h"
#include "models/vrt_fusion.h"

namespace lockstep::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;

VrtConfig FileConfig() {
  at::set_num_threads(1);
  VrtConfig config = *FindVrt("small");
  config.window_size = {2, 4, 4};
  config.embed_dims = {8, 8, 8, 8, 8, 8, 8, 12, 12};
  config.num_heads.assign(9, 2);
  config.deformable_groups = 2;
  return config;
}

bool SameParameters(const Vrt& a, const Vrt& b) {
  const auto other = b.named_parameters();
  for (const auto& item : a.named_parameters()) {
    if (!at::equal(item.value(), other[item.key()])) return false;
  }
  return true;
}

TEST(VrtFile, WrittenFilesLoadAgainInEitherFormatWrappedAndBare) {
  const auto dir = TempDir::Create("lockstep-vrt");
  ASSERT_TRUE(dir.ok());
  const Vrt model(FileConfig(), 1);
  for (const auto& [name, key] : {std::pair("a.pth", "params"), std::pair("b.pth", "params_ema"), std::pair("c.pt", ""),
                                  std::pair("d.safetensors", "params")}) {
    const std::string path = *dir / name;
    const Status written = WriteVrtFile(model, path, key);
    ASSERT_TRUE(written.ok()) << written.ToString();
    Vrt other(FileConfig(), 2);
    const Status loaded = LoadVrtFile(other, path);
    ASSERT_TRUE(loaded.ok()) << name << ": " << loaded.ToString();
    EXPECT_TRUE(SameParameters(model, other)) << name;
    // Half as many bits: within 2^-8 of each value.
    ASSERT_TRUE(WriteVrtFile(model, path, key, at::kBFloat16).ok()) << name;
    ASSERT_TRUE(LoadVrtFile(other, path).ok()) << name;
    EXPECT_FALSE(SameParameters(model, other)) << name;
    const at::Tensor first = model.named_parameters()["conv_first.weight"];
    EXPECT_TRUE(at::allclose(first, other.named_parameters()["conv_first.weight"], 0x1p-8, 0)) << name;
  }
}

TEST(VrtFile, StateDictsHaveUpstreamsBuffers) {
  const Vrt model(FileConfig(), 1);
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : VrtStateDict(model)) state[name] = tensor;
  const at::Tensor index = state.at("stage1.residual_group1.blocks.0.attn.relative_position_index");
  EXPECT_EQ(index.sizes(), (at::IntArrayRef{32, 32}));
  EXPECT_EQ(index.scalar_type(), at::kLong);
  EXPECT_EQ(state.at("stage1.residual_group1.blocks.0.attn.position_bias").sizes(), (at::IntArrayRef{1, 16, 8}));
  EXPECT_FALSE(state.contains("stage1.residual_group2.blocks.0.attn.position_bias"));
  EXPECT_EQ(state.at("spynet.mean").sizes(), (at::IntArrayRef{1, 3, 1, 1}));
}

TEST(VrtFile, TheAveragedWeightsAreTakenWhereThereAreBoth) {
  const Vrt model(FileConfig(), 1), averaged(FileConfig(), 2);
  NamedTensors both;
  for (const auto& [name, tensor] : VrtStateDict(model)) both.emplace_back("params." + name, tensor);
  for (const auto& [name, tensor] : VrtStateDict(averaged)) both.emplace_back("params_ema." + name, tensor);
  std::string note;
  Vrt loaded(FileConfig(), 3);
  ASSERT_TRUE(LoadVrt(loaded, *UnwrapVrt(both, "", &note)).ok());
  EXPECT_TRUE(SameParameters(loaded, averaged));
  EXPECT_THAT(note, HasSubstr("'params_ema' is taken"));
  ASSERT_TRUE(LoadVrt(loaded, *UnwrapVrt(both, "params")).ok());
  EXPECT_TRUE(SameParameters(loaded, model));
  EXPECT_THAT(UnwrapVrt(both, "ema").status().message(), HasSubstr("no weights under 'ema'"));
}

// DataParallel writes "module." before every name; S-VRT wraps SpyNet and matrices with LoRA, and saves an adapter's
// operator under two names.
TEST(VrtFile, NamesOfDataParallelAndOfSvrtAreUnderstood) {
  LoraConfig lora{.rank = 2, .alpha = 4, .targets = {"*.qkv_*.weight", "*.proj.weight"}};
  const auto make = [&](uint64_t seed) {
    auto model = std::make_shared<Vrt>(FileConfig(), seed);
    EXPECT_TRUE(model->AddLora(lora).ok());
    const auto adapter = std::make_shared<FusionAdapter>(FusionConfig{.op = "gated", .hidden_chans = 4}, seed);
    model->register_module("fusion_adapter", adapter);
    return model;
  };
  const auto model = make(1);
  std::set<std::string> with_lora;  // modules
  for (const auto& item : model->named_parameters()) {
    if (const size_t at = item.key().find(".lora_A"); at != std::string::npos)
      with_lora.insert(item.key().substr(0, at));
  }
  ASSERT_FALSE(with_lora.empty());
  NamedTensors svrt;
  for (const auto& item : model->named_parameters()) {
    std::string name = item.key();
    const std::string module = name.substr(0, name.rfind('.')), last = name.substr(name.rfind('.') + 1);
    if (name.starts_with("spynet.")) name = "spynet.model." + name.substr(7);
    if (with_lora.contains(module))
      name = module + (last.starts_with("lora_") ? "." + last + ".weight" : ".base." + last);
    svrt.emplace_back("params.module." + name, item.value());
    if (!name.starts_with("fusion_adapter.operator.")) continue;
    svrt.emplace_back("params.module.fusion_operator." + name.substr(24), item.value());
  }
  svrt.emplace_back("params.module.spynet.model.mean", SpyNetMean());
  const auto loaded = make(2);
  const Status status = LoadVrt(*loaded, *UnwrapVrt(svrt));
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(SameParameters(*model, *loaded));
}

TEST(VrtFile, AFileForRgbIsRefusedByAModelForSpikesWithWhatToDoAndCanBeWidened) {
  VrtConfig spike = FileConfig();
  spike.in_chans = 4;
  Vrt rgb(FileConfig(), 1), model(spike, 2);
  const NamedTensors before = CopyOf(model);
  const Status refused = LoadVrt(model, VrtStateDict(rgb));
  EXPECT_THAT(refused.message(), HasSubstr("conv_first.weight is [8, 27, 1, 3, 3], expected [8, 36, 1, 3, 3]"));
  EXPECT_THAT(refused.hint(),
              AllOf(HasSubstr("27 channels in the file and 36 in the model"),
                    HasSubstr("made for RGB (in_chans 3), the model for RGB and 1 spike channel"), HasSubstr("widen")));
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(tensor, model.named_parameters()[name])) << name;
  ASSERT_TRUE(LoadVrt(model, VrtStateDict(rgb), {.widen_first = true}).ok());
  rgb.eval();
  model.eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor clips = at::rand({1, 3, 4, 32, 32});
  EXPECT_TRUE(at::allclose(model.Forward(clips), rgb.Forward(clips.narrow(2, 0, 3)), 1e-4, 1e-5));
}

TEST(VrtFile, WeightsOfAnotherShapeAreNamed) {
  VrtConfig wide = FileConfig();
  wide.embed_dims[7] = wide.embed_dims[8] = 16;
  const Vrt other(wide, 1);
  Vrt model(FileConfig(), 2);
  const Status refused = LoadVrt(model, VrtStateDict(other));
  EXPECT_THAT(refused.message(), HasSubstr("stage8.0.2.weight is [16, 8], expected [12, 8]"));
  EXPECT_THAT(refused.hint(), HasSubstr("embed_dims"));
}

TEST(SpyNetFile, LoadsWrappedAndBare) {
  const SpyNet drawn;
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor parameter : drawn.parameters()) parameter.uniform_(-0.1, 0.1);
  }
  NamedTensors wrapped, parallel, part, bare = CopyOf(drawn);
  for (const auto& [name, tensor] : bare) {
    wrapped.emplace_back("params." + name, tensor);
    parallel.emplace_back("params.module." + name, tensor);
    part.emplace_back("spynet." + name, tensor);
  }
  bare.emplace_back("mean", SpyNetMean());
  bare.emplace_back("std", SpyNetDeviation());
  for (const NamedTensors& file : {wrapped, parallel, part, bare}) {
    SpyNet loaded;
    const Status status = loaded.Load(file);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const auto& item : loaded.named_parameters()) {
      EXPECT_TRUE(at::equal(item.value(), drawn.named_parameters()[item.key()]));
    }
  }
  SpyNet loaded;
  EXPECT_THAT(loaded.Load({}).message(), HasSubstr("60 missing"));
}

}  // namespace
}  // namespace lockstep::models
