// One update of a model from its reduced gradients: unscale, norm, clip, optimizer, EMA, loss scale. Three
// implementations, by where state and gradients live:
//
// - host: on the CPU, an update happens at once.
// - device: queued on the GPU. Whether the gradient is finite is decided there and the host never waits; it reads the
//   outcome a step or two later and settles its counters. Apply is device work alone, so that it can be captured in a
//   CUDA graph.
// - offload (offload.h): state on the host, gradients on the GPU.
//
// Used by the training thread; all ranks make the same calls in the same order.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/ema.h"
#include "engine/flat.h"
#include "engine/optimizer.h"
#include "engine/scaler.h"
#include "engine/strategy.h"

namespace lockstep::engine {

struct UpdaterConfig {
  OptimizerConfig optimizer;
  std::vector<GroupSettings> groups;
  std::vector<int> group_of;  // per parameter
  EmaConfig ema;
  bool scaled = false;  // fp16: the loss is scaled
  ScalerConfig scaler;
  double clip = 0;                      // 0: none
  at::ScalarType travels = at::kFloat;  // offload: what gradients are copied down in
  double host_share = 1;                // offload: of the own part; the rest is updated on the device
  double batch = 1;
};

class Updater {
 public:
  virtual ~Updater() = default;

  Optimizer& optimizer() { return optimizer_; }
  Ema& ema() { return ema_; }
  LossScaler* scaler() { return scaler_.get(); }  // null without fp16

  // After the host's state was replaced (a checkpoint), or when other parameters take part than before. Everything must
  // be settled.
  virtual void Sync() = 0;
  virtual bool in_sync() const = 0;

  virtual at::Tensor ScaleLoss(const at::Tensor& loss) const = 0;
  // What the next Apply needs from the host: the schedule's factor and the weight of the whole batch.
  virtual void Arm(double lr_factor, double weight) = 0;
  // One optimizer step, and one of the EMA when `ema` says so. `outcome` (three float64 on the device) becomes norm,
  // loss scale, and 1 where the gradient was not finite and nothing was applied.
  virtual Status Apply(bool ema, const at::Tensor& outcome) = 0;
  // Brings the host's counters up to date; once per Apply, in order.
  virtual void Settle(bool applied, bool ema) = 0;

  // Where updates go on behind Apply: waits for the parameters from this element of the own part on (0: all of them).
  virtual void WaitFor(int64_t /*begin*/) {}
  // Waits for all of it, and brings state and values to where the optimizer's slots and the own part say they are.
  virtual void Finish() {}
  // Memory of its own beside the optimizer's state: staging, copies on the device.
  virtual std::vector<at::Tensor> OwnMemory() const { return {}; }
  // Whether Apply can be captured in a CUDA graph.
  virtual bool captured() const { return true; }

  static constexpr int64_t kOutcome = 3;

 protected:
  Updater(const UpdaterConfig& config, const OwnedParameters& own, ParallelStrategy* strategy);

  UpdaterConfig config_;
  OwnedParameters own_;
  ParallelStrategy* strategy_;
  Optimizer optimizer_;
  Ema ema_;
  std::unique_ptr<LossScaler> scaler_;
};

// What updates have in common that are decided on the host at once.
class UpdaterOnHost : public Updater {
 public:
  bool in_sync() const override { return true; }
  at::Tensor ScaleLoss(const at::Tensor& loss) const override { return scaler_ ? loss * scaler_->scale() : loss; }
  void Arm(double lr_factor, double weight) override {
    lr_factor_ = lr_factor;
    weight_ = weight;
  }
  void Settle(bool /*applied*/, bool /*ema*/) override {}

 protected:
  using Updater::Updater;
  // From the norm of the gradients as they are: what they are multiplied by, or nothing where they are not finite.
  // Moves the loss scale, and writes the outcome.
  std::optional<double> Decide(double raw_norm, const at::Tensor& outcome);

  double lr_factor_ = 1, weight_ = 1;
};

std::unique_ptr<Updater> MakeHostUpdater(const UpdaterConfig& config, const OwnedParameters& own,
                                         ParallelStrategy* strategy);
std::unique_ptr<Updater> MakeDeviceUpdater(const UpdaterConfig& config, const OwnedParameters& own,
                                           ParallelStrategy* strategy);

}  // namespace lockstep::engine
