// A recipe small enough for hundreds of runs: a two-layer network that fits points. Some of its samples can be made
// unreadable, and a step can be made to fail on one rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "data/random.h"
#include "engine/recipe.h"

namespace lockstep::engine {

class Points : public data::Source {
 public:
  explicit Points(uint64_t size) : size_(size) {}
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return size_; }
  std::string Name(uint64_t index) const override { return "point " + std::to_string(index); }
  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    if (unreadable.contains(draw.index)) return Status(Code::kEnvironment, "is damaged");
    data::Random random(draw.index + 17);
    float x[4];
    for (float& value : x) value = static_cast<float>(random.Uniform(-1, 1));
    const float y[2] = {x[0] * x[1] + 0.5F * x[2], x[3] - x[0]};
    std::memcpy(out[0], x, sizeof x);
    std::memcpy(out[1], y, sizeof y);
    return Status::Ok();
  }
  std::string Describe() const override { return std::to_string(size_) + " points"; }
  std::string Digest() const override { return "points-" + std::to_string(size_); }
  std::set<uint64_t> unreadable;

 private:
  uint64_t size_;
  std::vector<data::Field> fields_ = {{"x", data::ElementType::kF32, {4}}, {"y", data::ElementType::kF32, {2}}};
};

struct ToyNet : torch::nn::Module {
  ToyNet() {
    first = register_module("first", torch::nn::Linear(4, 16));
    second = register_module("second", torch::nn::Linear(16, 2));
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

class Toy : public Recipe {
 public:
  std::string name() const override { return "toy"; }
  std::string help() const override { return "points"; }
  Status Build(const Config&, uint64_t seed) override {
    net = std::make_shared<ToyNet>();
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const at::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) parameter.uniform_(-0.5, 0.5, generator);
    return Status::Ok();
  }
  torch::nn::Module& model() override { return *net; }
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>&, const std::string&) override {
    return Status::Ok();
  }
  Result<Sources> Open(const Config&) override { return Sources{points, held_out, mixture}; }
  Loss ComputeLoss(const TensorBatch& batch) override {
    if (before_loss) before_loss(batch);
    const at::Tensor out = net->second->forward(at::tanh(net->first->forward(batch["x"])));
    return {at::mse_loss(out, batch["y"]) * factor, static_cast<double>(batch.count()), {}};
  }
  std::vector<Score> Validate(const TensorBatch& batch) override {
    const at::Tensor out = net->second->forward(at::tanh(net->first->forward(batch["x"])));
    return {{"error", (out - batch["y"]).abs().sum().item<double>() * score_factor}};
  }
  std::vector<std::string> Scores() const override { return {"error"}; }
  std::pair<std::string, bool> Best() const override { return {"error", false}; }
  RecipeState Save() override {
    RecipeState state;
    state.tensors.emplace_back("counter", counter);
    state.values["note"] = note;
    return state;
  }
  Status Restore(const RecipeState& state) override {
    note = state.values.value("note", "");
    return Status::Ok();
  }

  std::shared_ptr<Points> points = std::make_shared<Points>(61);
  std::shared_ptr<const data::Source> held_out;
  std::shared_ptr<const data::Mixture> mixture;
  std::shared_ptr<ToyNet> net;
  std::function<void(const TensorBatch&)> before_loss;
  double factor = 1;
  double score_factor = 1;
  at::Tensor counter = at::zeros({3}, at::kLong);
  std::string note;
};

inline Config ToyConfig() {
  Config config;
  config.train.precision = Precision::kFp32;  // on a GPU too
  config.train.steps = 12;
  config.train.batch = 8;
  config.train.optimizer.lr = 1e-2;
  config.train.schedule.kind = Schedule::Kind::kCosine;
  config.train.schedule.steps = 12;
  config.train.schedule.warmup = 2;
  config.data.threads = 0;
  config.track.tensorboard = false;
  return config;
}

}  // namespace lockstep::engine
