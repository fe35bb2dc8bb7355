#include "engine/average.h"

#include <algorithm>

#include "engine/kernels.h"
#include "engine/parallel.h"

namespace lockstep::engine {

Average::Average(const AverageConfig& config, const FlatParameters* flat) : config_(config), flat_(flat) {
  if (on()) values_ = flat->values().clone();
}

void Average::Update(uint64_t step) {
  if (!on() || step % config_.every != 0) return;
  const at::NoGradGuard no_grad;
  double decay = config_.decay;
  if (config_.warmup) {
    const auto n = static_cast<double>(updates_);
    decay = std::min(decay, (1 + n) / (10 + n));
  }
  ++updates_;
  if (!values_.device().is_cpu()) {
    values_.lerp_(flat_->values(), 1 - decay);
    return;
  }
  auto* average = values_.mutable_data_ptr<float>();
  const auto* p = static_cast<const float*>(flat_->values().const_data_ptr());
  ParallelFor(0, values_.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    kernels::Average(average + begin, p + begin, static_cast<size_t>(end - begin), static_cast<float>(decay));
  });
}

void Average::Swap() {
  if (!on()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor kept = flat_->values().clone();
  flat_->values().copy_(values_);
  values_.copy_(kept);
}

}  // namespace lockstep::engine
