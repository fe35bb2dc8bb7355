#include "engine/ema.h"

#include <algorithm>

#include "engine/host_memory.h"
#include "engine/kernels.h"
#include "engine/parallel.h"

namespace lockstep::engine {

Ema::Ema(const EmaConfig& config, const OwnedParameters& own) : config_(config), own_(own) {
  if (!on()) return;
  values_ = own.NewState();
  for (const auto& [begin, part] : own_.ValueParts()) values_.narrow(0, begin, part.numel()).copy_(part);
  device_updates_ = at::zeros({}, values_.options().dtype(at::kDouble));
}

void Ema::set_updates(uint64_t updates) {
  updates_ = updates;
  if (device_updates_.defined()) device_updates_.fill_(static_cast<double>(updates));
}

void Ema::Update() {
  const at::NoGradGuard no_grad;
  double decay = config_.decay;
  const auto n = static_cast<double>(updates_);
  if (config_.warmup == EmaConfig::Warmup::kInverse) decay = std::min(decay, (1 + n) / (10 + n));
  if (config_.warmup == EmaConfig::Warmup::kLinear) decay = std::min(decay, n / 10);
  ++updates_;
  for (const auto& [first, part] : own_.ValueParts()) {
    auto* average = values_.mutable_data_ptr<float>() + first;
    const auto* p = static_cast<const float*>(part.const_data_ptr());
    const int64_t chunk = own_.on_host ? kHostChunk : part.numel();
    for (int64_t at = 0; at < part.numel(); at += chunk) {
      ParallelFor(at, std::min(at + chunk, part.numel()), 1 << 16, [&](int64_t begin, int64_t end) {
        kernels::Average(average + begin, p + begin, static_cast<size_t>(end - begin), static_cast<float>(decay));
      });
    }
  }
}

void Ema::QueueUpdate(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor& n = device_updates_;
  const at::Tensor applies = 1 - found_inf.to(at::kDouble);
  at::Tensor weight = applies * (1 - config_.decay);
  if (config_.warmup == EmaConfig::Warmup::kInverse) {
    weight = applies * (1 - ((n + 1) / (n + 10)).clamp_max(config_.decay));
  } else if (config_.warmup == EmaConfig::Warmup::kLinear) {
    weight = applies * (1 - (n / 10).clamp_max(config_.decay));
  }
  weight = weight.to(at::kFloat);
  for (const auto& [begin, part] : own_.ValueParts()) values_.narrow(0, begin, part.numel()).lerp_(part, weight);
  device_updates_.add_(applies);
}

void Ema::Swap() {
  if (!on()) return;
  constexpr int64_t kSwapPiece = int64_t{1} << 22;  // elements that lie in memory once more
  const at::NoGradGuard no_grad;
  for (const auto& [begin, part] : own_.ValueParts()) {
    for (int64_t at = 0; at < part.numel(); at += kSwapPiece) {
      const at::Tensor own = part.narrow(0, at, std::min(kSwapPiece, part.numel() - at));
      const at::Tensor average = values_.narrow(0, begin + at, own.numel());
      const at::Tensor kept = own.clone();
      own.copy_(average);
      average.copy_(kept);
    }
  }
}

}  // namespace lockstep::engine
