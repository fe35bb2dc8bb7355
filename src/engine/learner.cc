#include "engine/learner.h"

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/offload.h"

namespace lockstep::engine {

Result<std::unique_ptr<Learner>> Learner::Create(const torch::nn::Module& module, const Settings& settings,
                                                 Ranks* ranks, at::Device device) {
  std::unique_ptr<Learner> made(new Learner);
  made->settings_ = settings;
  FlatParameters::Options storage = StorageFor(settings.strategy, *ranks);
  storage.host_master = settings.offload;
  storage.draw = settings.draw;
  // What a single backward on one rank computed in bf16 needs no wider type on its way.
  if (settings.offload && settings.single_pass && storage.stage == Stage::kReplicated && ranks->size() == 1 &&
      !settings.strategy.reproducible) {
    storage.gradients = storage.parameters;
  }
  made->late_ = settings.offload && storage.stage == Stage::kReplicated && !settings.strategy.units.empty();
  made->settings_.strategy.late_reset = made->late_;
  if (storage.stage == Stage::kOptimizer || storage.stage == Stage::kGradients) {
    storage.values = [&, type = storage.parameters](int64_t numel) {
      return ranks->tensors().AllocateFlat(numel, type, device);
    };
  }
  Result<FlatParameters> flat = FlatParameters::Create(
      module, [&](int64_t numel) { return ranks->tensors().AllocateFlat(numel, storage.gradients, device); }, storage);
  if (!flat.ok()) return flat.status();
  made->flat_ = std::move(*flat);
  made->ApplyFreeze(0);
  made->strategy_ = MakeStrategy(made->settings_.strategy, &made->flat_, ranks);
  UpdaterConfig& updater = made->settings_.updater;
  Groups groups = GroupParameters(settings.groups, updater.optimizer.weight_decay, made->flat_);
  updater.groups = std::move(groups.settings);
  updater.group_of = std::move(groups.group_of);
  if (settings.offload) {
    made->updater_ = MakeOffloadUpdater(updater, &made->flat_, made->strategy_.get());
  } else {
    made->updater_ =
        (settings.queued ? MakeDeviceUpdater : MakeHostUpdater)(updater, made->flat_.owned(), made->strategy_.get());
  }
  if (made->late_) made->FindUnits();
  made->numbers_ = at::zeros({made->numbers()}, at::TensorOptions().dtype(at::kDouble).device(device));
  return made;
}

bool Learner::ApplyFreeze(uint64_t step) {
  const bool changed = engine::ApplyFreeze(settings_.groups, step, flat_);
  if (changed && strategy_) strategy_->TrainableChanged();
  return changed;
}

// Where the parameters of each unit begin in the flat buffer, which an offloaded update fills from its end.
void Learner::FindUnits() {
  const std::vector<Unit>& units = settings_.strategy.units;
  std::map<std::string, size_t> unit_of;
  for (size_t u = 0; u < units.size(); ++u) {
    for (const std::string& name : units[u].parameters) unit_of.emplace(name, u);
  }
  unit_begin_.assign(units.size(), flat_.numel());
  rest_begin_ = flat_.numel();
  for (const FlatParameter& parameter : flat_.parameters()) {
    const auto found = unit_of.find(parameter.name);
    int64_t& begin = found == unit_of.end() ? rest_begin_ : unit_begin_[found->second];
    begin = std::min(begin, parameter.offset);
  }
}

Status Learner::Publish() {
  if (!late_) updater_->WaitFor(0);
  return strategy_->PublishParameters();
}

void Learner::BeforePass() {
  if (late_) updater_->WaitFor(rest_begin_);
}

void Learner::BeforeUnit(size_t unit) { updater_->WaitFor(unit_begin_[unit]); }

void Learner::BeginLosses() {
  numbers_.zero_();
  reset_ = late_;
}

void Learner::Backward(const Loss& loss) {
  if (reset_) {  // the forward pass has waited for the last parameter, so that no gradient is read any more
    updater_->WaitFor(0);
    flat_.ResetGradients();
    reset_ = false;
  }
  // Every pass adds its part of the mean over the nominal batch; what the batch really weighed is put right at the end.
  updater_->ScaleLoss(loss.mean.mul(loss.weight / settings_.updater.batch)).backward();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> losses = {loss.mean};
  losses.insert(losses.end(), loss.parts.begin(), loss.parts.end());
  TORCH_CHECK(losses.size() == 1 + settings_.parts, "the recipe gave ", loss.parts.size(), " parts of its loss, not ",
              settings_.parts);
  for (at::Tensor& one : losses) one = one.detach().to(at::kDouble).reshape({});
  numbers_.narrow(0, 0, static_cast<int64_t>(losses.size())).add_(at::stack(losses), loss.weight);
}

Status Learner::Apply(bool ema) {
  const at::NoGradGuard no_grad;
  return updater_->Apply(ema, numbers_.narrow(0, numbers() - Updater::kOutcome, Updater::kOutcome));
}

Learner::UpdateResult Learner::Read(const double* numbers) const {
  UpdateResult result;
  const size_t sums = 1 + settings_.parts;
  result.sums.assign(numbers, numbers + sums);
  result.norm = numbers[sums];
  result.scale = numbers[sums + 1];
  result.applied = numbers[sums + 2] == 0;
  return result;
}

std::string Learner::FirstBadParameter() const {
  const OwnedParameters& own = flat_.owned();
  for (auto it = own.segments.rbegin(); it != own.segments.rend(); ++it) {
    const at::Tensor part = own.Gradients(it->begin, it->end - it->begin, it->flat);
    if (!std::isfinite(part.sum().item<double>())) return flat_.parameters()[it->parameter].name;
  }
  return "";
}

}  // namespace lockstep::engine
