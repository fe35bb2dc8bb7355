// How gradients of all ranks become one, and who keeps which part of the optimizer's state: the small interface behind
// which DDP lives, and with it every way of sharding later. The trainer drives it, on its thread, on all ranks alike:
//
//   strategy.BeginStep();
//   for each micro-batch:  strategy.BeginBackward(last); loss.backward(); strategy.EndBackward();
//   strategy.FinishGradients();          // flat.gradients() now holds the sum over all ranks and micro-batches
//   the optimizer's step;
//   strategy.FinishParameters();
//
// A rank whose share of a step is empty, or whose backward failed, still makes every call: it adds zeros. So no rank
// can be alone in a collective.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace lockstep::engine {

struct FlatRange {
  int64_t begin = 0, end = 0;
};

class ParallelStrategy {
 public:
  virtual ~ParallelStrategy() = default;

  virtual void BeginStep() = 0;
  // `last`: the gradients of this backward complete the step, they may be sent as they come.
  virtual void BeginBackward(bool last) = 0;
  // After a backward, or instead of one. Errors name parameters that got no gradient where all must.
  enum class Backward { kDone, kEmpty, kFailed };
  virtual Status EndBackward(Backward outcome) = 0;
  // Between BeginBackward and EndBackward, instead of a backward: one that was recorded ran on the device, and every
  // trainable parameter got its gradient.
  virtual void Replayed() = 0;
  virtual Status FinishGradients() = 0;
  virtual Status FinishParameters() = 0;

  // The set of parameters that require gradients has changed (a freeze ended).
  virtual void TrainableChanged() = 0;
  // Which parameters take part in this step's update: trainable, and used by some rank.
  virtual const std::vector<bool>& used() const = 0;
  // The part of the flat buffer whose optimizer state lives on this rank. Both strategies here own all of it, and the
  // optimizer walks all of it; sharding begins where one owns less.
  virtual std::vector<FlatRange> OwnedRanges() const = 0;
  // Of the last step: time the training thread stood waiting for gradients of others.
  virtual double exposed_seconds() const = 0;
};

}  // namespace lockstep::engine
