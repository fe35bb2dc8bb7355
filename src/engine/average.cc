#include "engine/average.h"

#include <algorithm>

#include "engine/kernels.h"
#include "engine/parallel.h"

namespace lockstep::engine {

Average::Average(const AverageConfig& config, const FlatParameters* flat) : config_(config), flat_(flat) {
  if (!on()) return;
  values_ = flat->values().clone();
  device_updates_ = at::zeros({}, values_.options().dtype(at::kDouble));
}

void Average::set_updates(uint64_t updates) {
  updates_ = updates;
  if (device_updates_.defined()) device_updates_.fill_(static_cast<double>(updates));
}

void Average::Update() {
  const at::NoGradGuard no_grad;
  double decay = config_.decay;
  const auto n = static_cast<double>(updates_);
  if (config_.warmup == AverageConfig::Warmup::kInverse) decay = std::min(decay, (1 + n) / (10 + n));
  if (config_.warmup == AverageConfig::Warmup::kLinear) decay = std::min(decay, n / 10);
  ++updates_;
  auto* average = values_.mutable_data_ptr<float>();
  const auto* p = static_cast<const float*>(flat_->values().const_data_ptr());
  ParallelFor(0, values_.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    kernels::Average(average + begin, p + begin, static_cast<size_t>(end - begin), static_cast<float>(decay));
  });
}

void Average::QueueUpdate(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor& n = device_updates_;
  const at::Tensor applies = 1 - found_inf.to(at::kDouble);
  at::Tensor weight = applies * (1 - config_.decay);
  if (config_.warmup == AverageConfig::Warmup::kInverse) {
    weight = applies * (1 - ((n + 1) / (n + 10)).clamp_max(config_.decay));
  } else if (config_.warmup == AverageConfig::Warmup::kLinear) {
    weight = applies * (1 - (n / 10).clamp_max(config_.decay));
  }
  values_.lerp_(flat_->values(), weight.to(at::kFloat));
  device_updates_.add_(applies);
}

void Average::Swap() {
  if (!on()) return;
  const at::NoGradGuard no_grad;
  const at::Tensor kept = flat_->values().clone();
  flat_->values().copy_(values_);
  values_.copy_(kept);
}

}  // namespace lockstep::engine
