// One model being trained and all that updates it: flat parameters, the exchange of gradients, optimizer, average, loss
// scale. A training has one for its model and one for its companion. Owned by the trainer, used by its thread; all
// ranks make the same calls in the same order.
//
//   learner.strategy().BeginStep();
//   for each pass: BeginBackward; learner.Backward(loss); EndBackward      (of the strategy)
//   learner.strategy().FinishGradients();
//   learner.Arm(...); learner.Apply();
//   learner.Settle(numbers)
//
// On the CPU an update happens at once. On a GPU it is queued: whether the gradient is finite decides there, and the
// host never waits; what came of it stands in `numbers` and is settled a step or two later. Apply then consists of
// device work alone, so that it can be recorded in a graph.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <vector>

#include "engine/average.h"
#include "engine/config.h"
#include "engine/ddp.h"
#include "engine/flat.h"
#include "engine/optimizer.h"
#include "engine/ranks.h"
#include "engine/recipe.h"
#include "engine/scaler.h"
#include "engine/strategy.h"

namespace lockstep::engine {

class Learner {
 public:
  struct Settings {
    OptimizerConfig optimizer;
    std::vector<GroupRule> groups;
    AverageConfig average;
    bool scaled = false;  // fp16: the loss is scaled
    ScalerConfig scaler;
    double clip = 0;  // 0: none
    double batch = 1;
    DdpConfig ddp;
    bool reproducible = false;
    uint64_t shards = 1;
    bool queued = false;  // updates are queued on the device
    size_t parts = 0;     // further losses to add up beside the main one
  };
  static Result<std::unique_ptr<Learner>> Create(const torch::nn::Module& module, const Settings& settings,
                                                 Ranks* ranks, at::Device device);

  FlatParameters& flat() { return flat_; }
  const FlatParameters& flat() const { return flat_; }
  Optimizer& optimizer() { return *optimizer_; }
  Average& average() { return *average_; }
  LossScaler* scaler() { return scaler_.get(); }  // null without fp16
  ParallelStrategy& strategy() { return *strategy_; }

  // Gradients leave for other ranks as backward makes them.
  bool exchanges() const { return exchanges_; }

  // Sets requires_grad as it is at `step`. True when something changed.
  bool ApplyFreeze(uint64_t step);
  // After the host's state was replaced (a checkpoint), or when other parameters take part than before. Everything must
  // be settled.
  void Sync();
  bool in_sync() const { return !settings_.queued || optimizer_->IsActive(strategy_->used()); }

  // Adds this pass's gradients and losses to those of the step.
  void BeginLosses();
  void Backward(const Loss& loss);

  // What the next Apply needs from the host: the schedule's factor and the weight of the whole batch.
  void Arm(double lr_factor, double weight);
  // One optimizer step, and one of the average when `average` says so.
  void Apply(bool average);

  // What came of a step: sums of loss x weight over this rank's passes; norm, loss scale, whether it was applied (the
  // same on every rank).
  struct Outcome {
    std::vector<double> sums;  // the loss, then its parts
    double norm = 0, scale = 1;
    bool applied = false;
  };
  static constexpr int64_t kOutcome = 3;
  int64_t numbers() const { return 1 + static_cast<int64_t>(settings_.parts) + kOutcome; }
  // The same as numbers on the device, valid until the next step: [sums..., norm, scale, found_inf].
  at::Tensor Numbers() const { return numbers_; }
  Outcome Read(const double* numbers) const;
  // Brings the host's counters up to date; once per queued Apply, in order.
  void Settle(const Outcome& outcome, bool averaged);

  // The parameter nearest the input of backward whose gradient is not finite, or "".
  std::string FirstBadParameter() const;

 private:
  Learner() = default;
  void ApplyNow(bool average);
  void Queue(bool average);

  Settings settings_;
  bool exchanges_ = false;
  FlatParameters flat_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Average> average_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<ParallelStrategy> strategy_;
  at::Tensor numbers_;  // double; on the device

  double lr_factor_ = 1, weight_ = 1;
  // Queued: the same as scalars on the device.
  at::Tensor lr_factor_on_device_, share_, scale_, growth_;
};

}  // namespace lockstep::engine
