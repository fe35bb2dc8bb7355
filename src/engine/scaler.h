// The dynamic loss scale of fp16 training: grows after a run of finite steps, shrinks at an overflow. Whether a step
// was finite is read off the *reduced* gradients, which are the same on every rank, so all ranks always agree. A plain
// value; the trainer owns it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lockstep::engine {

struct ScalerConfig {
  double initial = 65536;
  double growth = 2;
  double backoff = 0.5;
  uint64_t interval = 2000;  // finite steps in a row before it grows
  double minimum = 1.0 / 65536;
};

class LossScaler {
 public:
  explicit LossScaler(const ScalerConfig& config) : config_(config), scale_(config.initial) {}

  double scale() const { return scale_; }
  uint64_t good_steps() const { return good_steps_; }
  // True once an overflow found the scale at its minimum: the numbers themselves are broken.
  bool exhausted() const { return exhausted_; }

  void Update(bool finite) {
    if (finite) {
      if (++good_steps_ == config_.interval) {
        scale_ *= config_.growth;
        good_steps_ = 0;
      }
      return;
    }
    exhausted_ = scale_ <= config_.minimum;
    scale_ = std::max(config_.minimum, scale_ * config_.backoff);
    good_steps_ = 0;
  }

  void Restore(double scale, uint64_t good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

 private:
  ScalerConfig config_;
  double scale_;
  uint64_t good_steps_ = 0;
  bool exhausted_ = false;
};

}  // namespace lockstep::engine
