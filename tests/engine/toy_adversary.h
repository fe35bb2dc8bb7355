// A toy with a discriminator: a critic that learns to tell the main model's outputs from the truth, and pulls it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "engine/toy.h"

namespace lockstep::engine {

struct Critic : torch::nn::Module {
  Critic() { layer = register_module("layer", torch::nn::Linear(2, 1)); }
  torch::nn::Linear layer{nullptr};
  at::Tensor seen = register_buffer("seen", at::zeros({}));
};

class Adversary : public Toy {
 public:
  Status Build(const Config& config, uint64_t seed) override {
    LOCKSTEP_RETURN_IF_ERROR(Toy::Build(config, seed));
    critic = std::make_shared<Critic>();
    const at::NoGradGuard no_grad;
    for (auto& parameter : critic->parameters()) parameter.fill_(0.1);
    return Status::Ok();
  }
  std::optional<Discriminator> discriminator() override {
    OptimizerConfig optimizer;
    optimizer.lr = 5e-2;
    return Discriminator{"critic", critic.get(), optimizer};
  }
  Status Prepare(const Pass& pass, TensorBatch* batch) override {
    EXPECT_EQ(batch->lanes.size(), batch->ids.size());
    at::Tensor sign = at::empty({batch->count(), 1});
    for (int64_t i = 0; i < batch->count(); ++i) {
      data::Random random(pass.step * 1000 + batch->lanes[static_cast<size_t>(i)]);
      sign[i][0] = random.Chance(0.5) ? 1.0 : -1.0;
    }
    batch->fields["sign"] = sign.to((*batch)["x"].device(), /*non_blocking=*/true);
    if (after_prepare) after_prepare();
    return Status::Ok();
  }
  Loss ComputeDiscriminatorLoss(const Pass& pass, const TensorBatch& batch) override {
    if (batch.count() == 0) return {critic->layer->forward(at::zeros({1, 2}, batch["x"].options())).sum() * 0, 0, {}};
    critic->seen.add_(1);
    at::Tensor out = Out(batch);
    const at::Tensor shown = at::where(batch["sign"] > 0, batch["y"], out.detach());
    if (pass.count == 1) kept = out;
    return {at::mse_loss(critic->layer->forward(shown), batch["sign"]), static_cast<double>(batch.count()), {}};
  }
  Loss ComputeLoss(const TensorBatch& batch) override {
    if (batch.count() == 0) return {};
    const at::Tensor out = kept.defined() ? std::exchange(kept, {}) : Out(batch);
    if (factor < 0) EXPECT_TRUE(std::isfinite(out.sum().item<double>()));  // waits for the device
    const at::Tensor pull = critic->layer->forward(out).mean();
    return {at::mse_loss(out, batch["y"]) - 0.01 * pull, static_cast<double>(batch.count()), {pull}};
  }
  Loss ComputeValidationLoss(const TensorBatch& batch) override {
    return {at::mse_loss(Out(batch), batch["y"]), static_cast<double>(batch.count()), {}};
  }
  std::vector<std::string> Parts() const override { return {"pull"}; }
  at::Tensor Out(const TensorBatch& batch) { return net->second->forward(at::tanh(net->first->forward(batch["x"]))); }
  std::shared_ptr<Critic> critic;
  std::function<void()> after_prepare;
  at::Tensor kept;  // the main model's output, for its own loss
};

}  // namespace lockstep::engine
