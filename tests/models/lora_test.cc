// LoRA of the decoder against PEFT (tests/golden/lora.py), and its rules.
#include "models/lora.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>

#include "base/files.h"
#include "base/json.h"
#include "base/run_python.h"
#include "golden/golden.h"
#include "models/decoder_file.h"
#include "models/normal.h"

namespace lockstep::models {
namespace {

using golden::Allowed;
using testing::HasSubstr;

at::Tensor LoraRows(const nlohmann::json& rows) {
  std::vector<at::Tensor> all;
  for (const auto& row : rows) all.push_back(at::tensor(row.get<std::vector<int64_t>>()));
  return at::stack(all);
}

bool IsLora(const std::string& name) { return name.find(".lora_") != std::string::npos; }

class LoraParity : public testing::TestWithParam<const char*> {
 protected:
  LoraParity() : all_(golden::Json("lora")), doc_(all_[GetParam()]), expected_(golden::Tensors("lora")) {
    at::set_num_threads(1);
    model_ = std::make_unique<Decoder>(*DecoderConfig::FromJson(doc_["config"]), 0, Decoder::Weights::kAllocated);
    const Status added =
        model_->AddLora({.rank = doc_["rank"], .alpha = doc_["alpha"], .targets = doc_["targets"], .dropout = 0});
    EXPECT_TRUE(added.ok()) << added.ToString();
    const torch::NoGradGuard no_grad;
    for (auto& item : model_->named_parameters()) {
      DrawNormal(all_["seed"], item.key(), 0, all_["deviation"], item.value().view({-1}));
      if (item.key().ends_with("norm.weight")) item.value().add_(1);
    }
    tokens_ = LoraRows(doc_["tokens"]);
    labels_ = ShiftedLabels(LoraRows(doc_["labels"]), {});
  }
  void Expect(const at::Tensor& found, const std::string& key) const {
    EXPECT_LT(golden::Distance(found, expected_.at(fmt::format("{}.{}", GetParam(), key))),
              Allowed(doc_["noise"][key.substr(0, key.find('.'))]))
        << key;
  }

  nlohmann::json all_, doc_;
  std::map<std::string, at::Tensor> expected_;
  std::unique_ptr<Decoder> model_;
  at::Tensor tokens_, labels_;
};

TEST_P(LoraParity, LogitsGradientsFiveStepsOfAdamWAndMergedLogitsArePefts) {
  const auto& options = all_["adamw"];
  const double rate = options["lr"], decay = options["weight_decay"], epsilon = options["eps"];
  const double beta1 = options["betas"][0], beta2 = options["betas"][1];
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> moments;
  for (size_t step = 0; step < doc_["losses"].size(); ++step) {
    model_->zero_grad();
    const at::Tensor hidden = model_->Hidden(tokens_, {});
    if (step == 0) Expect(model_->Logits(hidden), "logits");
    const at::Tensor loss = model_->Loss(hidden, labels_);
    loss.backward();
    EXPECT_NEAR(loss.item<double>() / doc_["losses"][step].get<double>(), 1, 1e-6) << step;
    const torch::NoGradGuard no_grad;
    for (auto& item : model_->named_parameters()) {
      at::Tensor& p = item.value();
      ASSERT_EQ(p.grad().defined(), IsLora(item.key())) << item.key();
      if (!p.grad().defined()) continue;
      if (step == 0) Expect(p.grad(), "gradient." + item.key());
      auto& [m, v] = moments[item.key()];
      if (!m.defined()) std::tie(m, v) = std::pair(at::zeros_like(p), at::zeros_like(p));
      m.lerp_(p.grad(), 1 - beta1);
      v.mul_(beta2).addcmul_(p.grad(), p.grad(), 1 - beta2);
      const double t = static_cast<double>(step + 1);
      const at::Tensor scale = (v / (1 - std::pow(beta2, t))).sqrt_().add_(epsilon);
      p.mul_(1 - rate * decay).addcdiv_(m, scale, -rate / (1 - std::pow(beta1, t)));
    }
  }
  for (const auto& item : model_->named_parameters()) {
    if (IsLora(item.key())) Expect(item.value(), "end." + item.key());
  }

  const TempDir folder = *TempDir::Create();
  ASSERT_TRUE(WriteDecoder(*model_, folder.path(), {.dtype = Dtype::kF32}).ok());
  const Result<DecoderFile> file = DecoderFile::Open(folder.path());
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  Decoder merged(file->config(), 0, Decoder::Weights::kAllocated);
  ASSERT_TRUE(file->Load(merged).ok());
  const at::Tensor logits = merged.Logits(merged.Hidden(tokens_, {}));
  Expect(logits, "merged");
  EXPECT_LT(golden::Distance(logits, model_->Logits(model_->Hidden(tokens_, {}))), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Goldens, LoraParity, testing::Values("attention", "all"),
                         [](const auto& info) { return std::string(info.param); });

DecoderConfig LoraBase() { return {.vocabulary = 61, .width = 64, .layers = 2, .mlp = 96, .tied = false}; }

TEST(Lora, BeginsAsTheBaseWithPeftsDistribution) {
  const DecoderConfig config = LoraBase();
  Decoder base(config, 7), model(config, 7);
  ASSERT_TRUE(model.AddLora({.rank = 16, .targets = {"*.down_proj.weight", "*.q_proj.weight"}}).ok());
  const at::Tensor tokens = at::arange(14).view({2, 7});
  EXPECT_TRUE(at::equal(model.Hidden(tokens, {}), base.Hidden(tokens, {})));
  const auto parameters = model.named_parameters();
  for (const auto& [matrix, in] : {std::pair("mlp.down_proj", 96), std::pair("self_attn.q_proj", 64)}) {
    const std::string name = fmt::format("model.layers.1.{}", matrix);
    const at::Tensor a = parameters[name + ".lora_A"].detach(), b = parameters[name + ".lora_B"].detach();
    const double bound = 1 / std::sqrt(in);
    EXPECT_EQ(a.sizes(), at::IntArrayRef({16, in}));
    EXPECT_LT(a.abs().max().item<double>(), bound);
    EXPECT_NEAR(a.std().item<double>(), bound / std::sqrt(3), 0.05 * bound);
    EXPECT_NEAR(a.mean().item<double>(), 0, 0.06 * bound);
    EXPECT_EQ(b.abs().max().item<double>(), 0);
    at::Tensor piece = at::empty({10});
    model.Draw(name + ".lora_A", 21, piece);
    EXPECT_TRUE(at::equal(piece, a.flatten().narrow(0, 21, 10))) << "a piece";
  }
}

TEST(Lora, BelongsToItsLayersUnitAndAloneRequiresGradients) {
  Decoder model(LoraBase());
  ASSERT_TRUE(model.AddLora({.rank = 2}).ok());
  size_t lora = 0, listed = 0;
  for (const auto& item : model.named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(), IsLora(item.key())) << item.key();
    lora += IsLora(item.key()) ? 1 : 0;
  }
  EXPECT_EQ(lora, 8u) << "A and B of queries and values in two layers";
  for (const auto& [unit, names] : model.Units()) {
    for (const std::string& name : names) {
      if (!IsLora(name)) continue;
      EXPECT_TRUE(name.starts_with("model." + unit + ".")) << unit << ": " << name;
      ++listed;
    }
  }
  EXPECT_EQ(listed, lora);
}

TEST(Lora, TargetsThatMatchNothingAreNamedWithTheNearest) {
  const std::pair<const char*, const char*> rows[] = {
      {"*.q_porj.weight", "did you mean '*.q_proj.weight'"},
      {"model.layers.0.mlp.up_prj.weight", "did you mean 'model.layers.0.mlp.up_proj.weight'"},
      {"q_proj", "names look like 'model.layers.0.self_attn.q_proj.weight'"},
      {"lm_head.weight", "'lm_head.weight' matches no matrix of the layers"},
      {"model.layers.2.*", "'model.layers.2.*' matches no matrix"},
  };
  for (const auto& [target, says] : rows) {
    const LoraConfig lora{.rank = 2, .targets = {"*.v_proj.weight", target}};
    EXPECT_THAT(lora.Choose(LoraBase()).status().ToString(), HasSubstr(says));
    Decoder model(LoraBase());
    const size_t parameters = model.parameters().size();
    EXPECT_FALSE(model.AddLora(lora).ok());
    EXPECT_EQ(model.parameters().size(), parameters) << "nothing was added";
  }
}

TEST(Lora, DropoutIsForTrainingAlone) {
  Decoder model(LoraBase());
  ASSERT_TRUE(model.AddLora({.rank = 2, .targets = {"*"}, .dropout = 0.5}).ok());
  const torch::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    if (item.key().ends_with(".lora_B")) item.value().fill_(0.5);
  }
  const at::Tensor tokens = at::arange(14).view({2, 7});
  model.train();
  EXPECT_FALSE(at::equal(model.Hidden(tokens, {}), model.Hidden(tokens, {})));
  model.eval();
  EXPECT_TRUE(at::equal(model.Hidden(tokens, {}), model.Hidden(tokens, {})));
}

TEST(Lora, AnAdapterHasPeftsNames) {
  const TempDir folder = *TempDir::Create();
  Decoder model(LoraBase(), 3);
  ASSERT_TRUE(model.AddLora({.rank = 2, .alpha = 3, .targets = {"*.0.*.o_proj.weight"}, .dropout = 0.1}).ok());
  const Status written = WriteAdapter(model, "Qwen/base", folder.path(), Dtype::kF32);
  ASSERT_TRUE(written.ok()) << written.ToString();
  const auto tensors = golden::ReadTensors(folder / "adapter_model.safetensors");
  const std::string name = "model.layers.0.self_attn.o_proj";
  ASSERT_EQ(tensors.size(), 2u);
  for (const char* part : {".lora_A", ".lora_B"}) {
    EXPECT_TRUE(at::equal(tensors.at("base_model.model." + name + part + ".weight"),
                          model.named_parameters()[name + part].detach()));
  }
  const nlohmann::json config = *ReadJsonFile(folder / "adapter_config.json");
  EXPECT_EQ(config["target_modules"], nlohmann::json({name}));
  EXPECT_EQ(config["r"], 2);
  EXPECT_EQ(config["lora_alpha"], 3.0);
  EXPECT_EQ(config["lora_dropout"], 0.1);
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["base_model_name_or_path"], "Qwen/base");
}

// These need a Python with transformers and peft (LOCKSTEP_PYTHON), which are no dependencies of the tests.
TEST(LoraGoldens, DISABLED_AreWhatTheirScriptComputes) {
  const PythonRun run = RunPython("golden/lora.py", "--check");
  EXPECT_EQ(run.code, 0) << run.output;
}

TEST(LoraGoldens, DISABLED_PeftLoadsTheAdapter) {
  const TempDir folder = *TempDir::Create();
  Decoder base(LoraBase(), 3), model(LoraBase(), 3);
  ASSERT_TRUE(model.AddLora({.rank = 2, .alpha = 3, .targets = {"*.layers.1.*", "*.q_proj.weight"}}).ok());
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : model.named_parameters()) {
      if (IsLora(item.key())) DrawNormal(1, item.key(), 0, 0.25, item.value().view({-1}));
    }
  }
  ASSERT_TRUE(WriteDecoder(base, folder / "base", {.dtype = Dtype::kF32}).ok());
  ASSERT_TRUE(WriteAdapter(model, "", folder / "adapter", Dtype::kF32).ok());
  const PythonRun run =
      RunPython("golden/lora.py", fmt::format("--adapter {0}/base {0}/adapter {0}/logits.safetensors", folder.path()));
  ASSERT_EQ(run.code, 0) << run.output;
  const at::Tensor tokens = at::arange(14).view({2, 7});
  const at::Tensor found = golden::ReadTensors(folder / "logits.safetensors").at("logits");
  EXPECT_LT(golden::Distance(found, model.Logits(model.Hidden(tokens, {}))), 5e-6);
  EXPECT_GT(golden::Distance(found, base.Logits(base.Hidden(tokens, {}))), 1e-2) << "the control: without the adapter";
}

}  // namespace
}  // namespace lockstep::models
