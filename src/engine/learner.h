// One model being trained and all that updates it: its memory, how ranks share it, and its updater. A training has one
// for its model and one for its discriminator. Owned by the trainer, used by its thread; all ranks make the same calls
// in the same order.
//
//   learner.strategy().BeginStep();
//   for each pass: BeginBackward; learner.Backward(loss); EndBackward      (of the strategy)
//   learner.strategy().FinishGradients();
//   learner.Arm(...); learner.Apply();
//   learner.strategy().PublishParameters();
//   learner.Settle(numbers)
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/flat.h"
#include "engine/groups.h"
#include "engine/ranks.h"
#include "engine/recipe.h"
#include "engine/strategy.h"
#include "engine/updater.h"

namespace lockstep::engine {

class Learner {
 public:
  struct Settings {
    UpdaterConfig updater;  // its groups follow from the rules below
    std::vector<GroupRule> groups;
    StrategyConfig strategy;
    bool queued = false;       // updates are queued on the device
    bool offload = false;      // the optimizer's state lies in host memory
    bool single_pass = false;  // a step has one backward
    DrawParameter draw;
    size_t parts = 0;  // further losses to add up beside the main one
  };
  static Result<std::unique_ptr<Learner>> Create(const torch::nn::Module& module, const Settings& settings,
                                                 Ranks* ranks, at::Device device);

  FlatParameters& flat() { return flat_; }
  const FlatParameters& flat() const { return flat_; }
  Optimizer& optimizer() { return updater_->optimizer(); }
  Ema& ema() { return updater_->ema(); }
  LossScaler* scaler() { return updater_->scaler(); }  // null without fp16
  ParallelStrategy& strategy() { return *strategy_; }
  std::vector<at::Tensor> OwnMemoryOfUpdates() const { return updater_->OwnMemory(); }

  // Sets requires_grad as it is at `step`. True when something changed.
  bool ApplyFreeze(uint64_t step);
  // After the host's state was replaced (a checkpoint), or when other parameters take part than before. Everything must
  // be settled.
  void Sync() { updater_->Sync(); }
  bool in_sync() const { return updater_->in_sync(); }

  // Adds this pass's gradients and losses to those of the step.
  void BeginLosses();
  void Backward(const Loss& loss);

  // What the next Apply needs from the host: the schedule's factor and the weight of the whole batch.
  void Arm(double lr_factor, double weight) { updater_->Arm(lr_factor, weight); }
  // One optimizer step, and one of the EMA when `ema` says so.
  Status Apply(bool ema);
  bool update_is_captured() const { return updater_->captured() && strategy_->captures_norm(); }
  // After the own values changed: every rank computes with them. An offloaded update may still be under way; then
  // `BeforeUnit` and `BeforePass` wait for what they need.
  Status Publish();
  void Finish() { updater_->Finish(); }
  void WaitForUpdate() { updater_->WaitFor(0); }
  void BeforePass();
  void BeforeUnit(size_t unit);
  bool waits_for_units() const { return late_; }

  // What came of a step: sums of loss x weight over this rank's passes; norm, loss scale, whether it was applied (the
  // same on every rank).
  struct UpdateResult {
    std::vector<double> sums;  // the loss, then its parts
    double norm = 0, scale = 1;
    bool applied = false;
  };
  int64_t numbers() const { return 1 + static_cast<int64_t>(settings_.parts) + Updater::kOutcome; }
  // The same as numbers on the device, valid until the next step: [sums..., norm, scale, found_inf].
  at::Tensor Numbers() const { return numbers_; }
  UpdateResult Read(const double* numbers) const;
  // Brings the host's counters up to date; once per Apply, in order.
  void Settle(const UpdateResult& result, bool ema) { updater_->Settle(result.applied, ema); }

  // The parameter nearest the input of backward, of those this rank updates, whose gradient is not finite, or "".
  std::string FirstBadParameter() const;

 private:
  Learner() = default;
  void FindUnits();

  Settings settings_;
  FlatParameters flat_;
  std::unique_ptr<ParallelStrategy> strategy_;
  std::unique_ptr<Updater> updater_;
  at::Tensor numbers_;  // double; on the device
  // An offloaded update goes on during the next forward.
  bool late_ = false, reset_ = false;
  std::vector<int64_t> unit_begin_;  // the lowest element of each unit's parameters
  int64_t rest_begin_ = 0;           // of those in no unit
};

}  // namespace lockstep::engine
