#include "engine/updater.h"

#include <ATen/ops/_amp_update_scale.h>

#include <cmath>

#include "engine/device_norm.h"

namespace lockstep::engine {

Updater::Updater(const UpdaterConfig& config, const OwnedParameters& own, ParallelStrategy* strategy)
    : config_(config),
      own_(own),
      strategy_(strategy),
      optimizer_(config.optimizer, own, config.groups, config.group_of),
      ema_(config.ema, own) {
  if (config.scaled) scaler_ = std::make_unique<LossScaler>(config.scaler);
}

std::optional<double> UpdaterOnHost::Decide(double raw_norm, const at::Tensor& outcome) {
  const double scale = scaler_ ? scaler_->scale() : 1;
  double factor = config_.batch / (weight_ * scale);
  const double norm = raw_norm * factor;
  const bool finite = std::isfinite(norm);
  if (scaler_) scaler_->Update(finite);
  if (config_.clip > 0 && norm > config_.clip) factor *= config_.clip / (norm + 1e-6);
  outcome.copy_(at::tensor({norm, scale, finite ? 0.0 : 1.0}, at::kDouble));
  return finite ? std::optional(factor) : std::nullopt;
}

namespace {

class HostUpdater : public UpdaterOnHost {
 public:
  HostUpdater(const UpdaterConfig& config, const OwnedParameters& own, ParallelStrategy* strategy)
      : UpdaterOnHost(config, own, strategy) {}

  void Sync() override {}
  Status Apply(bool ema, const at::Tensor& outcome) override {
    SquareSum squares = GradientSquares(own_);
    LOCKSTEP_RETURN_IF_ERROR(strategy_->CombineNorm(&squares));
    if (const std::optional<double> factor = Decide(squares.Norm(), outcome)) {
      optimizer_.Step(lr_factor_, *factor, strategy_->used());
      if (ema) ema_.Update();
    }
    return Status::Ok();
  }
};

class DeviceUpdater : public Updater {
 public:
  DeviceUpdater(const UpdaterConfig& config, const OwnedParameters& own, ParallelStrategy* strategy)
      : Updater(config, own, strategy) {
    const auto number = at::TensorOptions().dtype(at::kFloat).device(own.values.device());
    lr_factor_ = at::ones({}, number.dtype(at::kDouble));
    share_ = at::ones({}, number.dtype(at::kDouble));
    scale_ = at::ones({1}, number);
    growth_ = at::zeros({1}, number.dtype(at::kInt));
    Sync();
  }

  void Sync() override;
  bool in_sync() const override { return optimizer_.IsActive(strategy_->used()); }
  at::Tensor ScaleLoss(const at::Tensor& loss) const override { return scaler_ ? loss * scale_[0] : loss; }
  void Arm(double lr_factor, double weight) override {
    lr_factor_.fill_(lr_factor);
    share_.fill_(config_.batch / weight);
  }
  Status Apply(bool ema, const at::Tensor& outcome) override;
  void Settle(bool applied, bool ema) override;

 private:
  at::Tensor lr_factor_, share_, scale_, growth_;  // scalars on the device
};

void DeviceUpdater::Sync() {
  optimizer_.Activate(strategy_->used());
  if (ema_.on()) ema_.set_updates(ema_.updates());
  if (scaler_) {
    scale_.fill_(scaler_->scale());
    growth_.fill_(static_cast<int64_t>(scaler_->good_steps()));
  }
}

Status DeviceUpdater::Apply(bool ema, const at::Tensor& outcome) {
  at::Tensor factor = share_ / scale_[0];
  const Result<at::Tensor> total = GradientNormOnDevice(own_, strategy_);
  if (!total.ok()) return total.status();
  const at::Tensor norm = *total * factor;
  const at::Tensor found_inf = at::isfinite(norm).logical_not();
  if (config_.clip > 0) factor = at::where(norm > config_.clip, factor * config_.clip / (norm + 1e-6), factor);
  const at::Tensor found = found_inf.to(at::kFloat);
  optimizer_.QueueStep(lr_factor_, factor, found);
  if (ema) ema_.QueueUpdate(found);
  outcome.copy_(at::stack({norm, scale_[0].to(at::kDouble), found_inf.to(at::kDouble)}));
  if (scaler_) {
    at::_amp_update_scale_(scale_, growth_, found, config_.scaler.growth, config_.scaler.backoff,
                           static_cast<int64_t>(config_.scaler.interval));
    scale_.clamp_min_(config_.scaler.minimum);
  }
  return Status::Ok();
}

void DeviceUpdater::Settle(bool applied, bool ema) {
  optimizer_.Settle(applied);
  if (ema) ema_.Settle(applied);
  if (scaler_) scaler_->Update(applied);
}

}  // namespace

std::unique_ptr<Updater> MakeHostUpdater(const UpdaterConfig& config, const OwnedParameters& own,
                                         ParallelStrategy* strategy) {
  return std::make_unique<HostUpdater>(config, own, strategy);
}

std::unique_ptr<Updater> MakeDeviceUpdater(const UpdaterConfig& config, const OwnedParameters& own,
                                           ParallelStrategy* strategy) {
  return std::make_unique<DeviceUpdater>(config, own, strategy);
}

}  // namespace lockstep::engine
