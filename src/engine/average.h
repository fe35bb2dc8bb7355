// The exponential moving average of the parameters (EMA), flat like them. Counted by steps, never by wall time, so that
// a resumed run has the same average. Used by the training thread; every rank keeps the same one.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "engine/flat.h"

namespace lockstep::engine {

struct AverageConfig {
  double decay = 0;    // 0: off
  bool warmup = true;  // decay at update n is at most (1 + n) / (10 + n), so that the start is soon forgotten
  uint64_t every = 1;  // steps between updates
};

class Average {
 public:
  Average(const AverageConfig& config, const FlatParameters* flat);

  bool on() const { return config_.decay > 0; }
  void Update(uint64_t step);  // after optimizer step number `step` (1, 2, ...)
  const at::Tensor& values() const { return values_; }
  uint64_t updates() const { return updates_; }
  void set_updates(uint64_t updates) { updates_ = updates; }
  // Exchanges the average and the parameters: before and after a validation.
  void Swap();

 private:
  AverageConfig config_;
  const FlatParameters* flat_;
  at::Tensor values_;
  uint64_t updates_ = 0;
};

}  // namespace lockstep::engine
