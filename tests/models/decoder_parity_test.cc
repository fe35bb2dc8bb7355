// The decoder against Hugging Face's Qwen2ForCausalLM and LlamaForCausalLM (tests/golden/decoder.py).
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/autograd.h>

#include "base/run_python.h"
#include "golden/golden.h"
#include "models/decoder.h"
#include "models/normal.h"

namespace lockstep::models {
namespace {

using golden::Allowed, golden::Digest, golden::Distance;

const nlohmann::json& DecoderDoc() {
  static const nlohmann::json doc = golden::Json("decoder");
  return doc;
}

at::Tensor IntegerRows(const nlohmann::json& rows) {
  std::vector<at::Tensor> all;
  for (const auto& row : rows) all.push_back(at::tensor(row.get<std::vector<int64_t>>()));
  return at::stack(all);
}

struct CpuAutocast {
  CpuAutocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~CpuAutocast() {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

// One case of the goldens: its model with the weights that the script draws too, and what is expected of it.
struct DecoderCase {
  explicit DecoderCase(const std::string& name, double deviation = DecoderDoc()["deviation"])
      : doc(DecoderDoc()[name]) {
    at::set_num_threads(1);
    for (const auto& [key, tensor] : golden::Tensors("decoder")) {
      if (key.starts_with(name + ".")) expected[key.substr(name.size() + 1)] = tensor;
    }
    auto config = DecoderConfig::FromJson(doc["config"]);
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    model = std::make_unique<Decoder>(*config, 0, Decoder::Weights::kAllocated);
    const torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      DrawNormal(DecoderDoc()["seed"], item.key(), 0, deviation, item.value().view({-1}));
      if (item.key().ends_with("norm.weight")) item.value().add_(1);
    }
    tokens = IntegerRows(doc["tokens"]);
    if (doc.contains("labels")) labels = ShiftedLabels(IntegerRows(doc["labels"]), {});
  }

  at::Tensor Loss(const Packing& packing = {}) const { return model->Loss(model->Hidden(tokens, packing), labels); }

  void Expect(const at::Tensor& found, const std::string& key, const char* noise = "noise", double factor = 1) const {
    const double allowed = factor * Allowed(doc[noise][key.substr(0, key.find('.'))]);
    EXPECT_LT(Distance(found, expected.at(key)), allowed) << key;
  }
  void ExpectGradients(const char* noise = "noise") const {
    size_t count = 0;
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      Expect(Digest(item.value().grad()), "gradient." + item.key(), noise);
      ++count;
    }
    for (const auto& [key, tensor] : expected) count -= key.starts_with("gradient.") ? 1 : 0;
    EXPECT_EQ(count, 0u) << "parameters of another number";
  }

  nlohmann::json doc;
  std::map<std::string, at::Tensor> expected;
  std::unique_ptr<Decoder> model;
  at::Tensor tokens, labels;
};

class DecoderParity : public testing::TestWithParam<const char*> {
 protected:
  DecoderCase golden_{GetParam()};
  Decoder& model_ = *golden_.model;
};

TEST_P(DecoderParity, LogitsLossAndGradientsAreHuggingFaces) {
  const at::Tensor hidden = model_.Hidden(golden_.tokens, {});
  golden_.Expect(model_.Logits(hidden), "logits");
  const at::Tensor loss = model_.Loss(hidden, golden_.labels);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_NEAR(loss.item<double>() / golden_.doc["losses"][0].get<double>(), 1, Allowed(golden_.doc["noise"]["loss"]));
  loss.backward();
  golden_.ExpectGradients();
}

TEST_P(DecoderParity, TwentyStepsOfAdamWAreHuggingFaces) {
  const auto& options = DecoderDoc()["adamw"];
  const double rate = options["lr"], decay = options["weight_decay"], epsilon = options["eps"];
  const double beta1 = options["betas"][0], beta2 = options["betas"][1];
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> moments;
  for (size_t step = 0; step < golden_.doc["losses"].size(); ++step) {
    model_.zero_grad();
    const at::Tensor loss = golden_.Loss();
    loss.backward();
    EXPECT_NEAR(loss.item<double>(), golden_.doc["losses"][step].get<double>(), 1e-5) << step;
    const torch::NoGradGuard no_grad;
    for (auto& item : model_.named_parameters()) {
      at::Tensor& p = item.value();
      auto& [m, v] = moments[item.key()];
      if (!m.defined()) std::tie(m, v) = std::pair(at::zeros_like(p), at::zeros_like(p));
      m.lerp_(p.grad(), 1 - beta1);
      v.mul_(beta2).addcmul_(p.grad(), p.grad(), 1 - beta2);
      const double t = static_cast<double>(step + 1);
      const at::Tensor scale = (v / (1 - std::pow(beta2, t))).sqrt_().add_(epsilon);
      p.mul_(1 - rate * decay).addcdiv_(m, scale, -rate / (1 - std::pow(beta1, t)));
    }
  }
  for (const auto& item : model_.named_parameters()) golden_.Expect(Digest(item.value()), "end." + item.key());
}

TEST_P(DecoderParity, GreedyTokensAreHuggingFaces) {
  const at::Tensor expected = IntegerRows(golden_.doc["generated"]);
  auto cache = model_.NewCache(golden_.tokens.size(0), golden_.tokens.size(1) + expected.size(1));
  at::Tensor input = golden_.tokens;
  std::vector<at::Tensor> made;
  for (int64_t i = 0; i < expected.size(1); ++i) {
    input = model_.Next(input, cache.get()).argmax(-1, true);
    made.push_back(input);
  }
  EXPECT_TRUE(at::equal(at::cat(made, 1), expected)) << at::cat(made, 1) << expected;
}

TEST_P(DecoderParity, UnderAutocastItIsAsFarFromTheTruthAsHuggingFace) {
  at::Tensor loss;
  {
    const CpuAutocast autocast;
    const at::Tensor hidden = model_.Hidden(golden_.tokens, {});
    EXPECT_EQ(hidden.scalar_type(), at::kBFloat16);
    golden_.Expect(model_.Logits(hidden), "logits", "noise_bf16", 0.5);
    loss = model_.Loss(hidden, golden_.labels);
  }
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  loss.backward();  // outside autocast, as trainings run it
  golden_.ExpectGradients("noise_bf16");
}

INSTANTIATE_TEST_SUITE_P(Goldens, DecoderParity, testing::Values("tied_2", "untied_1", "untied_4", "llama"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DecoderPacked, DocumentsInOneRowAreHuggingFacesRunsOfEachAlone) {
  DecoderCase golden("packed");
  std::vector<at::Tensor> documents;
  for (const auto& length : golden.doc["lengths"]) {
    documents.push_back(at::full({1, length.get<int64_t>()}, static_cast<int64_t>(documents.size()), at::kLong));
  }
  const Packing packing{.documents = at::cat(documents, 1)};
  golden.labels = ShiftedLabels(golden.tokens, packing.documents);
  golden.Expect(golden.model->Logits(golden.model->Hidden(golden.tokens, packing)), "logits");
  const at::Tensor loss = golden.Loss(packing);
  EXPECT_NEAR(loss.item<double>(), golden.doc["losses"][0].get<double>(), 1e-5);
  loss.backward();
  golden.ExpectGradients();
  EXPECT_GT(std::abs(golden.Loss().item<double>() - loss.item<double>()), 1e-2) << "the control: without boundaries";
  const Packing running{at::arange(golden.tokens.size(1)).unsqueeze(0), packing.documents};
  EXPECT_NEAR(golden.Loss(running).item<double>(), loss.item<double>(), 1e-5) << "rotary positions are relative";
}

TEST(DecoderAtFullSize, OneLayerOfTheLargestShapeIsHuggingFaces) {
  DecoderCase golden("wide", DecoderDoc()["wide_deviation"]);
  golden.labels = ShiftedLabels(golden.tokens, {});
  const at::Tensor hidden = golden.model->Hidden(golden.tokens, {});
  golden.Expect(Digest(hidden), "hidden");
  golden.Expect(golden.model->Logits(hidden), "logits");
  const at::Tensor loss = golden.model->Loss(hidden, golden.labels);
  EXPECT_NEAR(loss.item<double>(), golden.doc["losses"][0].get<double>(), 1e-5);
  // One gradient at a time: all together are another gigabyte.
  for (const auto& item : golden.model->named_parameters()) {
    const auto gradient = torch::autograd::grad({loss}, {item.value()}, {}, /*retain_graph=*/true);
    golden.Expect(Digest(gradient[0]), "gradient." + item.key());
  }
}

TEST(DecoderDraws, AreWhatThePythonFormulaGives) {
  const at::Tensor expected = golden::Tensors("decoder").at("drawn");
  at::Tensor found = at::empty_like(expected);
  DrawNormal(7, "model.layers.0.mlp.up_proj.weight", 0, 1.0, found);
  EXPECT_LT(Distance(found, expected), 2e-7);
  DrawNormal(8, "model.layers.0.mlp.up_proj.weight", 0, 1.0, found);
  EXPECT_GT(Distance(found, expected), 0.1) << "another seed";
}

// Needs a Python with transformers (LOCKSTEP_PYTHON), which is no dependency of the tests.
TEST(DecoderGoldens, DISABLED_AreWhatTheirScriptComputes) {
  const PythonRun run = RunPython("golden/decoder.py", "--check");
  EXPECT_EQ(run.code, 0) << run.output;
}

}  // namespace
}  // namespace lockstep::models
