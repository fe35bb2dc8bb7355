// Twenty training steps of TAEHV with the engine's buffers, clipping and AdamW against PyTorch (tests/golden/make.py).
#include <gtest/gtest.h>

#include "engine/optimizer.h"
#include "engine/recompute.h"
#include "golden/golden.h"
#include "models/taehv.h"

namespace lockstep {
namespace {

models::TaehvConfig ConfigOf(const nlohmann::json& row) {
  models::TaehvConfig config;
  config.latent = row.value("latent", config.latent);
  config.encoder_width = row.value("encoder_width", config.encoder_width);
  config.decoder_width = row.value("decoder_width", config.decoder_width);
  return config;
}

struct Trained {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights;
};

Trained Train(const nlohmann::json& doc, const at::Tensor& frames, double clip, bool recompute) {
  at::set_num_threads(1);  // the nets are too small to share out, and busy machines make threads wait for each other
  models::Taehv model(ConfigOf(doc["config"]), doc["seed"]);
  model.StartNearIdentity();
  if (recompute) {
    model.SetWrap(
        [](size_t, const models::Taehv::Stage& stage, const at::Tensor& x) { return engine::Recompute(stage, x); });
  }
  auto flat = engine::FlatParameters::Create(model, [](int64_t n) { return at::zeros({n}); });
  EXPECT_TRUE(flat.ok());
  engine::OptimizerConfig config;
  config.lr = doc["lr"];
  config.beta1 = doc["betas"][0];
  config.beta2 = doc["betas"][1];
  config.epsilon = doc["epsilon"];
  engine::Optimizer optimizer(config, flat->owned(), {{1, doc["weight_decay"]}},
                              std::vector<int>(flat->parameters().size(), 0));
  Trained trained;
  for (size_t step = 0; step < doc["loss"].size(); ++step) {
    flat->ResetGradients();
    at::Tensor loss = at::mse_loss(model.Decode(model.Encode(frames)), model.Target(frames));
    loss.backward();
    double norm = engine::GradientNorm(flat->gradients());
    trained.losses.push_back(loss.item<double>());
    trained.norms.push_back(norm);
    optimizer.Step(1, std::min(1.0, clip / (norm + 1e-6)), std::vector<bool>(flat->parameters().size(), true));
  }
  for (const auto& item : model.named_parameters()) trained.weights[item.key()] = item.value().detach().clone();
  return trained;
}

class TaehvTraining : public testing::TestWithParam<const char*> {
 protected:
  nlohmann::json doc = golden::Json(GetParam());
  std::map<std::string, at::Tensor> expected = golden::Tensors(GetParam());

  // Largest distance from PyTorch, in units of what is allowed.
  double Distance(const Trained& trained) {
    double largest = 0;
    auto series = [&](const char* name, const std::vector<double>& found) {
      auto golden = at::tensor(doc[name].get<std::vector<double>>(), at::kDouble);
      largest = std::max(
          largest, golden::Distance(at::tensor(found, at::kDouble), golden) / golden::Allowed(doc["noise"][name]));
    };
    series("loss", trained.losses);
    series("norm", trained.norms);
    for (const auto& [name, weight] : trained.weights) {
      at::Tensor found = doc["whole"] ? weight : golden::Digest(weight);
      largest =
          std::max(largest, golden::Distance(found, expected.at("end." + name)) / golden::Allowed(doc["noise"]["end"]));
    }
    return largest;
  }
};

TEST_P(TaehvTraining, TwentyStepsOfAdamWWithClippingEndWherePyTorchEnds) {
  EXPECT_LT(Distance(Train(doc, expected["frames"], doc["clip"], false)), 1);
  // The clip must have been at work in some steps and not in others, else this says nothing about it.
  auto norms = doc["norm"].get<std::vector<double>>();
  EXPECT_LT(*std::min_element(norms.begin(), norms.end()), doc["clip"].get<double>());
  EXPECT_GT(*std::max_element(norms.begin(), norms.end()), doc["clip"].get<double>());
}

TEST_P(TaehvTraining, WithoutClippingItEndsElsewhere) {
  EXPECT_GT(Distance(Train(doc, expected["frames"], 1e9, false)), 1);
}

TEST_P(TaehvTraining, RecomputingActivationsChangesNoBit) {
  Trained plain = Train(doc, expected["frames"], doc["clip"], false);
  Trained recomputed = Train(doc, expected["frames"], doc["clip"], true);
  for (const auto& [name, weight] : plain.weights) EXPECT_TRUE(at::equal(weight, recomputed.weights[name])) << name;
}

INSTANTIATE_TEST_SUITE_P(Goldens, TaehvTraining, testing::Values("taehv_tiny", "taehv_small"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep
