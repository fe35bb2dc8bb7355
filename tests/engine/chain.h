// A recipe whose model has units, for strategies that gather them.
#pragma once

#include <torch/nn/modules/linear.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/toy.h"

namespace lockstep::engine {

// Five layers, each a unit; a scale that two of them use belongs to none. One layer may be left out. What the third
// one gets is used twice in its unit and once outside: its gradient has three terms, whose order decides the bits.
struct ChainNet : torch::nn::Module {
  ChainNet() {
    for (int i = 0; i < 5; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(i == 0 ? 4 : 24, i == 4 ? 2 : 24)));
    }
    scale = register_parameter("scale", at::ones({24}));
  }
  std::vector<torch::nn::Linear> layers;
  at::Tensor scale;
};

class Chain : public Toy {
 public:
  Status Build(const Config&, uint64_t seed) override {
    chain = std::make_shared<ChainNet>();
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const at::NoGradGuard no_grad;
    for (auto& parameter : chain->parameters()) parameter.uniform_(-0.5, 0.5, generator);
    if (built) built(*chain);
    if (!undrawn) return Status::Ok();
    for (auto& item : chain->named_parameters()) {
      whole[item.key()] = item.value().detach().clone().view({-1});
      item.value().set_data(at::full({1}, std::nan("")).expand(item.value().sizes()));
    }
    return Status::Ok();
  }
  bool UndrawnParts() override { return undrawn = by_parts; }
  Status DrawPart(const std::string& name, int64_t begin, const at::Tensor& out) override {
    out.copy_(whole.at(name).narrow(0, begin, out.numel()));
    drawn += out.numel();
    return Status::Ok();
  }
  torch::nn::Module& model() override { return *chain; }
  std::vector<Unit> Units() override {
    std::vector<Unit> units;
    for (int i = 0; i < 5; ++i) {
      const std::string name = "layer" + std::to_string(i);
      units.push_back({name, {name + ".weight", name + ".bias"}});
    }
    return units;
  }
  void RunUnits(UnitRunner runner) override { run = std::move(runner); }
  at::Tensor Forward(const at::Tensor& input) {
    at::Tensor x = input;
    for (size_t i = 0; i < chain->layers.size(); ++i) {
      if (i == left_out) continue;
      const auto forward = [this, i](const at::Tensor& y) {
        at::Tensor z = chain->layers[i]->forward(y);
        if (i == 1 || i == 3) z = z * chain->scale;
        if (i == foreign) z = z * chain->layers[0]->bias;
        return i == 4 ? z : i == 2 ? y + at::tanh(z) : at::tanh(z);
      };
      const at::Tensor z = run ? run(i, forward, x) : forward(x);
      x = i == 2 ? x + z : z;
    }
    return x;
  }
  Loss ComputeLoss(const TensorBatch& batch) override {
    if (before_loss) before_loss(batch);
    return {at::mse_loss(Forward(batch["x"]).to(at::kFloat), batch["y"]), static_cast<double>(batch.count()), {}};
  }
  std::vector<Score> Validate(const TensorBatch& batch) override {
    return {{"error", (Forward(batch["x"]) - batch["y"]).abs().sum().item<double>()}};
  }

  std::shared_ptr<ChainNet> chain;
  UnitRunner run;
  std::function<void(ChainNet&)> built;
  size_t left_out = 99, foreign = 99;
  bool by_parts = false, undrawn = false;  // each rank draws its shares only
  std::map<std::string, at::Tensor> whole;
  int64_t drawn = 0;
};

}  // namespace lockstep::engine
