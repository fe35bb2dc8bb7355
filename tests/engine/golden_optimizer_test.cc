// AdamW, Adam and SGD over twenty steps of fixed gradients, against torch.optim in float64 (tests/golden/make.py).
#include <gtest/gtest.h>

#include "engine/optimizer.h"
#include "golden/golden.h"

namespace lockstep::engine {
namespace {

struct Parameters : torch::nn::Module {
  explicit Parameters(const std::map<std::string, at::Tensor>& tensors) {
    for (const char* name : {"a", "b", "c"}) register_parameter(name, tensors.at(std::string("start.") + name).clone());
  }
};

OptimizerConfig ConfigOf(const nlohmann::json& row) {
  OptimizerConfig config;
  config.kind = row["kind"] == "adamw"  ? OptimizerConfig::Kind::kAdamW
                : row["kind"] == "adam" ? OptimizerConfig::Kind::kAdam
                                        : OptimizerConfig::Kind::kSgd;
  config.lr = row["lr"];
  if (row.contains("betas")) config.beta1 = row["betas"][0], config.beta2 = row["betas"][1];
  config.weight_decay = row["weight_decay"];
  config.momentum = row.value("momentum", 0.0);
  config.nesterov = row.value("nesterov", false);
  return config;
}

class GoldenOptimizer : public testing::TestWithParam<const char*> {
 protected:
  // Largest distance from PyTorch after the first and the last step. `factor` multiplies gradients in the optimizer,
  // having divided them here: the result must not notice.
  double Run(const nlohmann::json& row, const nlohmann::json& groups, double factor) {
    auto tensors = golden::Tensors("optimizers");
    Parameters module(tensors);
    auto flat = FlatParameters::Create(module, [](int64_t n) { return at::zeros({n}); });
    EXPECT_TRUE(flat.ok());
    OptimizerConfig config = ConfigOf(row);
    std::vector<GroupSettings> settings = {{1, config.weight_decay},
                                           {groups["b"]["lr_scale"], groups["b"]["weight_decay"]}};
    std::vector<int> group_of;
    for (const FlatParameter& p : flat->parameters()) group_of.push_back(p.name == "b" ? 1 : 0);
    Optimizer optimizer(config, flat->owned(), settings, group_of);
    double largest = 0;
    for (int step = 0; step < 20; ++step) {
      for (const FlatParameter& p : flat->parameters()) {
        FlatParameters::View(flat->gradients(), p).copy_(tensors.at("gradients." + p.name)[step] / factor);
      }
      optimizer.Step(1, factor, std::vector<bool>(flat->parameters().size(), true));
      if (step != 0 && step != 19) continue;
      for (const FlatParameter& p : flat->parameters()) {
        auto expected = tensors.at(fmt::format("{}.after{}.{}", GetParam(), step + 1, p.name));
        largest = std::max(largest, golden::Distance(p.tensor, expected));
      }
    }
    return largest;
  }
};

TEST_P(GoldenOptimizer, TwentyStepsEndWherePyTorchEnds) {
  auto doc = golden::Json("optimizers");
  const auto& row = doc["cases"][GetParam()];
  EXPECT_LT(Run(row, doc["groups"], 1), golden::Allowed(row["noise"]));
  EXPECT_LT(Run(row, doc["groups"], 1.0 / 1024), golden::Allowed(row["noise"])) << "with scaled gradients";
}

TEST_P(GoldenOptimizer, AnotherLearningRateInOneGroupIsNoticed) {
  auto doc = golden::Json("optimizers");
  doc["groups"]["b"]["lr_scale"] = 0.26;
  EXPECT_GT(Run(doc["cases"][GetParam()], doc["groups"], 1), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenOptimizer,
                         testing::Values("adamw", "adamw_plain", "adam", "sgd", "momentum", "nesterov"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep::engine
