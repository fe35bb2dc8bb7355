// Weight files: what they are taken for, what a variant takes from another, and that Python reads what we write and we
// read what Python writes (tests/golden/exchange.py).
#include "models/taehv_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "base/files.h"
#include "base/safetensors.h"
#include "base/weights.h"
#include "golden/golden.h"
#include "models/state_copy.h"
#include "paths.h"

namespace lockstep::models {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// Drawn once: eleven million numbers take a moment.
const NamedTensors& WeightsOf(const std::string& variant) {
  static std::map<std::string, NamedTensors> drawn;
  auto it = drawn.find(variant);
  if (it == drawn.end()) it = drawn.emplace(variant, StateDict(Taehv(*FindTaehv(variant), 1))).first;
  return it->second;
}

bool Same(const TaehvConfig& a, const TaehvConfig& b) { return ToJson(a) == ToJson(b); }

// A file in any format, with its metadata.
struct File {
  NamedTensors tensors;
  std::map<std::string, std::string> metadata;
};

File Read(const std::string& path) {
  auto weights = OpenWeights(path);
  if (!weights.ok()) throw std::runtime_error(weights.status().ToString());
  File file{.tensors = {}, .metadata = (*weights)->metadata()};
  for (const TensorInfo& info : (*weights)->tensors()) {
    at::ScalarType type = info.dtype == Dtype::kF16    ? at::kHalf
                          : info.dtype == Dtype::kBF16 ? at::kBFloat16
                          : info.dtype == Dtype::kF32  ? at::kFloat
                                                       : at::kLong;
    at::Tensor tensor = at::empty(info.shape, type);
    if (tensor.nbytes() != info.bytes) continue;
    Status read = (*weights)->Read(info.name, tensor.data_ptr(), info.bytes);
    if (!read.ok()) throw std::runtime_error(read.ToString());
    file.tensors.emplace_back(info.name, tensor);
  }
  return file;
}

TEST(TaehvJson, KeepsEveryVariantWithItsBehaviour) {
  for (const TaehvConfig& row : TaehvVariants()) {
    auto back = TaehvFromJson(nlohmann::json::parse(ToJson(row).dump()));
    ASSERT_TRUE(back.ok()) << back.status().ToString();
    EXPECT_TRUE(Same(*back, row)) << row.name;
  }
  TaehvConfig all = {.name = "own",
                     .patch = 3,
                     .latent = 5,
                     .encoder_time = {2, 1, 1},
                     .decoder_time = {1, 1, 2},
                     .encoder_width = {1, 2, 3, 4},
                     .decoder_width = {5, 6, 7, 8},
                     .super = true,
                     .decoder_space = {1, 2, 1},
                     .cogvideox = true,
                     .chunk = 9,
                     .chunk_drop = 2};
  EXPECT_TRUE(Same(*TaehvFromJson(ToJson(all)), all));
  EXPECT_FALSE(Same(all, *FindTaehv("taehv")));
}

TEST(TaehvJson, RefusesWhatItDoesNotKnowAndDefaultsWhatIsAbsent) {
  auto refuses = [](const char* text) { return TaehvFromJson(nlohmann::json::parse(text)).status().message(); };
  EXPECT_THAT(refuses(R"({"colour": 3})"), HasSubstr("no field 'colour'"));
  EXPECT_THAT(refuses(R"({"patch": 0})"), HasSubstr("patch is 0, expected a whole number from 1"));
  EXPECT_THAT(refuses(R"({"patch": 1.5})"), HasSubstr("patch is 1.5"));
  EXPECT_THAT(refuses(R"({"encoder_time": [2, 2]})"), HasSubstr("encoder_time is [2,2]"));
  EXPECT_THAT(refuses(R"({"cogvideox": 1})"), HasSubstr("cogvideox is 1, expected true or false"));
  EXPECT_THAT(refuses(R"({"latent": 99999999999999999999})"), HasSubstr("latent is"));
  EXPECT_THAT(refuses(R"({"chunk": 16})"), HasSubstr("one more than a multiple of 4"));
  EXPECT_THAT(refuses(R"({"chunk": 17, "chunk_drop": 5})"), HasSubstr("leaves nothing"));
  EXPECT_THAT(refuses(R"([])"), HasSubstr("expected an object"));
  EXPECT_TRUE(Same(*TaehvFromJson(nlohmann::json::object()), *FindTaehv("taehv")));
}

TEST(Recognize, ShapesDecideWhereTheyCan) {
  std::string note;
  for (const char* variant : {"taehv1_5", "taew2_2", "taeh3", "taehv1_5_super", "taew2_2_super", "taehv-small"}) {
    // Whatever the name says.
    auto config = RecognizeTaehv(WeightsOf(variant), "/some/where/taecvx.pth", {}, &note);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_TRUE(Same(*config, *FindTaehv(variant))) << variant << " became " << config->name;
    EXPECT_THAT(note, IsEmpty());
  }
}

TEST(Recognize, TheNameDecidesAmongEqualShapesAndOtherwiseTheFirstIsAssumed) {
  std::string note;
  NamedTensors weights = WeightsOf("taehv"), wide = WeightsOf("taecvx_super"), longer = WeightsOf("taeltx_2");
  auto name = [&](const NamedTensors& tensors, const std::string& file) {
    return RecognizeTaehv(tensors, file, {}, &note)->name;
  };
  EXPECT_EQ(name(weights, "models/taecvx.pth"), "taecvx");
  EXPECT_TRUE(RecognizeTaehv(weights, "my-taecvx-v2.safetensors", {})->cogvideox);
  EXPECT_EQ(name(weights, "taew2_1.safetensors"), "taew2_1");
  EXPECT_EQ(name(weights, "taeos1_3.pth"), "taeos1_3");
  EXPECT_EQ(name(weights, "taehv.pth"), "taehv");
  EXPECT_EQ(name(longer, "taeltx2_3.pth"), "taeltx2_3");
  EXPECT_EQ(name(wide, "taecvx_super.pth"), "taecvx_super");
  EXPECT_THAT(note, IsEmpty());
  // The folder is not the file.
  EXPECT_EQ(name(weights, "taecvx/final_model.pth"), "taehv");
  EXPECT_THAT(note, AllOf(HasSubstr("taehv or taew2_1 or taeos1_3 or taecvx"), HasSubstr("taken as taehv")));
}

TEST(Recognize, MetadataOfOurOwnExportStandsAboveTheName) {
  NamedTensors weights = WeightsOf("taecvx");
  std::map<std::string, std::string> metadata = {{"lockstep.taehv", ToJson(*FindTaehv("taecvx")).dump()}};
  EXPECT_TRUE(RecognizeTaehv(weights, "taehv.safetensors", metadata)->cogvideox);
  metadata["lockstep.taehv"] = ToJson(*FindTaehv("taehv1_5")).dump();
  EXPECT_THAT(RecognizeTaehv(weights, "f", metadata).status().message(), HasSubstr("says it is taehv1_5"));
  metadata["lockstep.taehv"] = "{";
  EXPECT_FALSE(RecognizeTaehv(weights, "f", metadata).ok());
}

TEST(Recognize, ShapesOfNoVariantGiveAModelThatTakesThem) {
  TaehvConfig config = {.name = "own",
                        .patch = 2,
                        .latent = 7,
                        .encoder_time = {1, 2, 1},
                        .decoder_time = {1, 1, 2},
                        .encoder_width = {4, 6, 8, 4},
                        .decoder_width = {12, 8, 4, 4}};
  std::string note;
  for (bool super : {false, true}) {
    config.super = super;
    config.decoder_space = super ? std::array<int, 3>{2, 1, 2} : std::array<int, 3>{2, 2, 2};
    NamedTensors weights = CopyOf(Taehv(config, 1));
    auto found = RecognizeTaehv(weights, "model.pth", {}, &note);
    ASSERT_TRUE(found.ok());
    EXPECT_THAT(note, HasSubstr("no variant is like this file"));
    EXPECT_TRUE(Taehv(*found, 2).Load(weights).ok());
    EXPECT_EQ(found->decoder_space, config.decoder_space);
  }
}

TEST(Recognize, AFileOfAnotherModelIsRefused) {
  EXPECT_THAT(RecognizeTaehv({{"fc.weight", at::zeros({3, 3})}}, "x.pth", {}).status().message(),
              HasSubstr("x.pth: this is not a TAEHV weight file"));
  EXPECT_FALSE(RecognizeTaehv({}, "taehv.pth", {}).ok());
  NamedTensors half = WeightsOf("taehv-small");
  half.resize(half.size() / 2);  // no decoder
  EXPECT_FALSE(RecognizeTaehv(half, "taehv.pth", {}).ok());
  NamedTensors odd = WeightsOf("taehv-small");
  odd[0].second = at::zeros({16, 5, 3, 3});  // five channels are no patch of RGB
  EXPECT_FALSE(RecognizeTaehv(odd, "taehv.pth", {}).ok());
}

TEST(StartFrom, TheSameVariantTakesEverything) {
  Taehv from(*FindTaehv("taehv-small"), 1), to(*FindTaehv("taehv-small"), 2);
  ConversionReport report;
  ASSERT_TRUE(StartFrom(to, CopyOf(from), &report).ok());
  EXPECT_EQ(report.taken.size(), StateDict(from).size());
  EXPECT_THAT(report.drawn, IsEmpty());
  for (const auto& item : to.named_parameters()) {
    EXPECT_TRUE(at::equal(item.value(), from.named_parameters()[item.key()])) << item.key();
  }
}

TEST(StartFrom, AnotherVariantKeepsItsOwnFirstAndLastLayersAndSaysSo) {
  Taehv to(*FindTaehv("taehv1_5"), 2);
  NamedTensors before = CopyOf(to), weights = WeightsOf("taehv");
  ConversionReport report;
  ASSERT_TRUE(StartFrom(to, weights, &report).ok());
  EXPECT_THAT(report.drawn, ElementsAre(StartsWith("encoder.0.weight (file [64, 3, 3, 3], model [64, 12, 3, 3])"),
                                        StartsWith("encoder.17.weight"), StartsWith("encoder.17.bias"),
                                        StartsWith("decoder.1.weight"), StartsWith("decoder.22.weight"),
                                        StartsWith("decoder.22.bias")));
  std::map<std::string, at::Tensor> old(before.begin(), before.end()), given(weights.begin(), weights.end());
  EXPECT_TRUE(at::equal(to.named_parameters()["encoder.0.weight"], old["encoder.0.weight"]));
  EXPECT_TRUE(at::equal(to.named_parameters()["decoder.3.conv.0.weight"], given["decoder.3.conv.0.weight"]));
  EXPECT_THAT(report.Summary(), AllOf(HasSubstr("122 of 128 tensors taken"), HasSubstr("6 newly drawn")));
}

TEST(StartFrom, FewerGrownFramesKeepTheLastRowsAndMoreAreDrawn) {
  Taehv to(*FindTaehv("taehv"), 2), back(*FindTaehv("taeltx_2"), 2);
  ConversionReport report;
  ASSERT_TRUE(StartFrom(to, WeightsOf("taeltx_2"), &report).ok());
  EXPECT_THAT(report.cut, ElementsAre("decoder.7.conv.weight"));
  ASSERT_TRUE(StartFrom(back, WeightsOf("taehv"), &report).ok());
  EXPECT_THAT(report.cut, IsEmpty());
  EXPECT_THAT(report.drawn, Contains(StartsWith("decoder.7.conv.weight (file [256, 256, 1, 1]")));
  EXPECT_THAT(report.drawn, Contains(StartsWith("encoder.12.conv.weight")));
}

TEST(StartFrom, TheWideDecoderTakesNothingFromThePlainOne) {
  Taehv to(*FindTaehv("taehv1_5_super"), 2);
  ConversionReport report;
  ASSERT_TRUE(StartFrom(to, WeightsOf("taehv1_5"), &report).ok());
  EXPECT_THAT(report.taken, Not(Contains(StartsWith("decoder."))));
  EXPECT_EQ(report.taken.size(), 64u);
  // Equal name and shape, another place in the network.
  EXPECT_THAT(report.drawn, Contains("decoder.7.conv.weight (another decoder)"));
  EXPECT_THAT(report.unused, Contains("decoder.7.conv.weight"));
}

TEST(StartFrom, TooLittleIsAnErrorThatListsAndChangesNothing) {
  Taehv model(*FindTaehv("taehv-small"), 2);
  NamedTensors before = CopyOf(model);
  Status wide = StartFrom(model, WeightsOf("taehv"));
  EXPECT_THAT(wide.message(),
              AllOf(HasSubstr("too little of the file fits"), HasSubstr("encoder.0.weight"), HasSubstr("and")));
  EXPECT_THAT(wide.hint(), HasSubstr("is taehv"));
  EXPECT_FALSE(StartFrom(model, {{"fc.weight", at::zeros({3})}}).ok());
  EXPECT_FALSE(StartFrom(model, {}).ok());
  NamedTensors after = StateDict(model);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(at::equal(after[i].second, before[i].second));
}

// ThinNamed nets named after their variant; the exchange goes through the metadata, not the name.
TaehvConfig ThinNamed(const std::string& variant) {
  TaehvConfig config = *FindTaehv(variant);
  config.encoder_width = {4, 6, 4, 4};
  config.decoder_width = {8, 6, 4, 4};
  return config;
}

TEST(Export, IsReadByPythonAndPythonsFilesAreReadHere) {
  at::set_num_threads(1);
  torch::NoGradGuard no_grad;
  auto dir = TempDir::Create("lockstep-export");
  ASSERT_TRUE(dir.ok());
  std::vector<std::string> variants = {"taecvx", "taeh3", "taeltx_2", "taew2_2_super"};
  std::map<std::string, std::shared_ptr<Taehv>> models;
  for (const std::string& variant : variants) {
    models[variant] = std::make_shared<Taehv>(ThinNamed(variant), 1);
    models[variant]->StartNearIdentity();
    Status exported = ExportTaehv(*models[variant], *dir / (variant + ".safetensors"));
    ASSERT_TRUE(exported.ok()) << exported.ToString();
  }
  const char* python = getenv("LOCKSTEP_PYTHON");
  std::string program = python != nullptr ? python : SourceDir() + "/.venv/bin/python";
  ASSERT_EQ(system(fmt::format("'{}' '{}/tests/golden/exchange.py' '{}'", program, SourceDir(), dir->path()).c_str()),
            0);
  for (const std::string& variant : variants) {
    auto expected = golden::ReadTensors(*dir / (variant + ".out"));
    at::Tensor latents = models[variant]->Encode(expected.at("frames"));
    EXPECT_LT(golden::Distance(latents, expected.at("latents")), 1e-5) << variant;
    EXPECT_LT(golden::Distance(models[variant]->Decode(latents), expected.at("decoded")), 1e-5) << variant;
    for (const char* kind : {".safetensors", ".float32.pth", ".float16.pth", ".bfloat16.pth", ".float32.plain",
                             ".float16.plain", ".bfloat16.plain", ".wrapped.pth"}) {
      File file = Read(*dir / (variant + kind));
      auto config = RecognizeTaehv(file.tensors, variant + kind, file.metadata);
      ASSERT_TRUE(config.ok()) << config.status().ToString();
      EXPECT_EQ(config->cogvideox, variant == "taecvx") << kind;
      EXPECT_EQ(config->chunk, variant == "taeh3" ? 17 : 0) << kind;
      Taehv loaded(*config, 9);
      Status status = loaded.Load(file.tensors);
      ASSERT_TRUE(status.ok()) << variant << kind << ": " << status.ToString();
      at::Tensor again = loaded.Encode(expected.at("frames"));
      bool rounded = std::string(kind).find("16") != std::string::npos;
      EXPECT_LT(golden::Distance(again, latents), rounded ? 0.05 : 1e-12) << variant << kind;
      if (!rounded) EXPECT_TRUE(at::equal(loaded.Decode(again), models[variant]->Decode(latents))) << variant << kind;
    }
  }
}

TEST(Export, InHalfPrecisionKeepsNamesAndRoundsOnce) {
  auto dir = TempDir::Create("lockstep-export");
  ASSERT_TRUE(dir.ok());
  Taehv model(ThinNamed("taew2_2"), 1);
  for (auto [dtype, type] : {std::pair(Dtype::kF16, at::kHalf), std::pair(Dtype::kBF16, at::kBFloat16)}) {
    ASSERT_TRUE(ExportTaehv(model, *dir / "half.safetensors", dtype).ok());
    File file = Read(*dir / "half.safetensors");
    EXPECT_EQ(file.metadata.at("lockstep.model"), "taew2_2");
    EXPECT_EQ(file.tensors.size(), StateDict(model).size());
    for (const auto& [name, tensor] : file.tensors) {
      EXPECT_TRUE(at::equal(tensor, model.named_parameters()[name].to(type))) << name;
    }
  }
}

TEST(Export, RefusesBrokenWeightsAndUnwritablePlaces) {
  auto dir = TempDir::Create("lockstep-export");
  ASSERT_TRUE(dir.ok());
  torch::NoGradGuard no_grad;
  Taehv model(ThinNamed("taehv"), 1);
  EXPECT_FALSE(ExportTaehv(model, *dir / "missing/folder/x.safetensors").ok());
  EXPECT_THAT(ExportTaehv(model, *dir / "x.safetensors", Dtype::kI8).message(), HasSubstr("cannot be exported as I8"));
  model.named_parameters()["decoder.1.bias"].fill_(1e6);
  EXPECT_THAT(ExportTaehv(model, *dir / "x.safetensors", Dtype::kF16).message(),
              HasSubstr("decoder.1.bias has values that F16 cannot hold"));
  EXPECT_TRUE(ExportTaehv(model, *dir / "x.safetensors", Dtype::kBF16).ok());
  model.named_parameters()["decoder.1.bias"].fill_(NAN);
  EXPECT_THAT(ExportTaehv(model, *dir / "y.safetensors").message(),
              HasSubstr("decoder.1.bias has values that are not"));
  EXPECT_FALSE(std::filesystem::exists(*dir / "y.safetensors"));
}

}  // namespace
}  // namespace lockstep::models
