#include "engine/learner.h"

#include <ATen/ops/_amp_update_scale.h>
#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "engine/canonical_ddp.h"

namespace lockstep::engine {

Result<std::unique_ptr<Learner>> Learner::Create(const torch::nn::Module& module, const Settings& settings,
                                                 Ranks* ranks, at::Device device) {
  std::unique_ptr<Learner> made(new Learner);
  made->settings_ = settings;
  made->exchanges_ = !settings.reproducible && (ranks->size() > 1 || settings.ddp.alone);
  Result<FlatParameters> flat = FlatParameters::Create(
      module, [&](int64_t numel) { return ranks->tensors().AllocateFlat(numel, at::kFloat, device); });
  if (!flat.ok()) return flat.status();
  made->flat_ = std::move(*flat);
  const Groups groups = GroupParameters(settings.groups, settings.optimizer.weight_decay, made->flat_);
  made->optimizer_ = std::make_unique<Optimizer>(settings.optimizer, &made->flat_, groups.settings, groups.group_of);
  made->average_ = std::make_unique<Average>(settings.average, &made->flat_);
  if (settings.scaled) made->scaler_ = std::make_unique<LossScaler>(settings.scaler);
  made->ApplyFreeze(0);
  if (settings.reproducible) {
    made->strategy_ = std::make_unique<CanonicalDdp>(settings.shards, &made->flat_, ranks);
  } else {
    made->strategy_ = std::make_unique<Ddp>(settings.ddp, &made->flat_, ranks);
  }
  const auto number = at::TensorOptions().dtype(at::kDouble).device(device);
  made->numbers_ = at::zeros({made->numbers()}, number);
  if (settings.queued) {
    made->lr_factor_on_device_ = at::ones({}, number.dtype(at::kFloat));
    made->share_ = at::ones({}, number);
    made->scale_ = at::ones({1}, number.dtype(at::kFloat));
    made->growth_ = at::zeros({1}, number.dtype(at::kInt));
    made->Sync();
  }
  return made;
}

bool Learner::ApplyFreeze(uint64_t step) {
  const bool changed = engine::ApplyFreeze(settings_.groups, step, flat_);
  if (changed && strategy_) strategy_->TrainableChanged();
  return changed;
}

void Learner::Sync() {
  if (!settings_.queued) return;
  optimizer_->Activate(strategy_->used());
  if (average_->on()) average_->set_updates(average_->updates());
  if (scaler_) {
    scale_.fill_(scaler_->scale());
    growth_.fill_(static_cast<int64_t>(scaler_->good_steps()));
  }
}

void Learner::BeginLosses() { numbers_.zero_(); }

void Learner::Backward(const Loss& loss) {
  // Every pass adds its part of the mean over the nominal batch; what the batch really weighed is put right at the end.
  at::Tensor scaled = loss.mean.mul(loss.weight / settings_.batch);
  if (settings_.queued && scaler_) {
    scaled = scaled * scale_[0];
  } else if (scaler_) {
    scaled = scaled * scaler_->scale();
  }
  scaled.backward();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> losses = {loss.mean};
  losses.insert(losses.end(), loss.parts.begin(), loss.parts.end());
  TORCH_CHECK(losses.size() == 1 + settings_.parts, "the recipe gave ", loss.parts.size(), " parts of its loss, not ",
              settings_.parts);
  for (at::Tensor& one : losses) one = one.detach().to(at::kDouble).reshape({});
  numbers_.narrow(0, 0, static_cast<int64_t>(losses.size())).add_(at::stack(losses), loss.weight);
}

void Learner::Arm(double lr_factor, double weight) {
  lr_factor_ = lr_factor;
  weight_ = weight;
  if (!settings_.queued) return;
  lr_factor_on_device_.fill_(lr_factor);
  share_.fill_(settings_.batch / weight);
}

void Learner::Apply(bool average) {
  const at::NoGradGuard no_grad;
  if (settings_.queued) {
    Queue(average);
  } else {
    ApplyNow(average);
  }
}

void Learner::ApplyNow(bool average) {
  const double scale = scaler_ ? scaler_->scale() : 1;
  double factor = settings_.batch / (weight_ * scale);
  const double norm = GradientNorm(flat_.gradients()) * factor;
  const bool finite = std::isfinite(norm);
  if (scaler_) scaler_->Update(finite);
  if (finite) {
    if (settings_.clip > 0 && norm > settings_.clip) factor *= settings_.clip / (norm + 1e-6);
    optimizer_->Step(lr_factor_, factor, strategy_->used());
    if (average) average_->Update();
  }
  auto* numbers = numbers_.mutable_data_ptr<double>() + 1 + settings_.parts;
  numbers[0] = norm;
  numbers[1] = scale;
  numbers[2] = finite ? 0 : 1;
}

// The same in device work: no value comes back to the host.
void Learner::Queue(bool average) {
  at::Tensor factor = share_ / scale_[0];
  const at::Tensor norm = at::linalg_vector_norm(flat_.gradients(), 2, std::nullopt, false, at::kDouble) * factor;
  const at::Tensor found_inf = at::isfinite(norm).logical_not();
  if (settings_.clip > 0) {
    factor = at::where(norm > settings_.clip, factor * settings_.clip / (norm + 1e-6), factor);
  }
  const at::Tensor found = found_inf.to(at::kFloat);
  optimizer_->QueueStep(lr_factor_on_device_, factor.reciprocal().to(at::kFloat), found);
  if (average) average_->QueueUpdate(found);
  numbers_.narrow(0, numbers() - kOutcome, kOutcome)
      .copy_(at::stack({norm, scale_[0].to(at::kDouble), found_inf.to(at::kDouble)}));
  if (scaler_) {
    at::_amp_update_scale_(scale_, growth_, found, settings_.scaler.growth, settings_.scaler.backoff,
                           static_cast<int64_t>(settings_.scaler.interval));
    scale_.clamp_min_(settings_.scaler.minimum);
  }
}

Learner::Outcome Learner::Read(const double* numbers) const {
  Outcome outcome;
  const size_t sums = 1 + settings_.parts;
  outcome.sums.assign(numbers, numbers + sums);
  outcome.norm = numbers[sums];
  outcome.scale = numbers[sums + 1];
  outcome.applied = numbers[sums + 2] == 0;
  return outcome;
}

void Learner::Settle(const Outcome& outcome, bool averaged) {
  if (!settings_.queued) return;
  optimizer_->Settle(outcome.applied);
  if (averaged) average_->Settle(outcome.applied);
  if (scaler_) scaler_->Update(outcome.applied);
}

std::string Learner::FirstBadParameter() const {
  const auto& parameters = flat_.parameters();
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (!std::isfinite(FlatParameters::View(flat_.gradients(), *it).sum().item<double>())) return it->name;
  }
  return "";
}

}  // namespace lockstep::engine
