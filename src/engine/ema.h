// The exponential moving average of the parameters (EMA), of this rank's own part. Counted by steps, never by wall
// time, so that a resumed run has the same average. Used by the training thread.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "engine/flat.h"

namespace lockstep::engine {

struct EmaConfig {
  // The decay at update n (0, 1, ...) is at most this, so that the start is soon forgotten.
  enum class Warmup {
    kNone,
    kInverse,  // (1 + n) / (10 + n)
    kLinear,   // n / 10: the first update copies
  };
  double decay = 0;  // 0: off
  Warmup warmup = Warmup::kInverse;
  uint64_t every = 1;  // steps between updates
};

class Ema {
 public:
  Ema(const EmaConfig& config, const OwnedParameters& own);

  bool on() const { return config_.decay > 0; }
  // Whether an update belongs to optimizer step number `step` (1, 2, ...).
  bool Due(uint64_t step) const { return on() && step % config_.every == 0; }
  void Update();
  // The same queued on a GPU, without waiting: nothing changes where `found_inf` is 1. The host's count follows with
  // Settle, and `set_updates` puts the device's right.
  void QueueUpdate(const at::Tensor& found_inf);
  void Settle(bool updated) { updates_ += updated ? 1 : 0; }
  const at::Tensor& values() const { return values_; }
  uint64_t updates() const { return updates_; }
  void set_updates(uint64_t updates);
  // Exchanges the average and the own parameters: before and after a validation.
  void Swap();

 private:
  EmaConfig config_;
  OwnedParameters own_;
  at::Tensor values_;
  uint64_t updates_ = 0;
  at::Tensor device_updates_;  // QueueUpdate's own count, on the device
};

}  // namespace lockstep::engine
