// Mixed precision: parameters stay float32, the forward pass computes in bf16 or fp16 where autocast allows. A guard
// for the calling thread; the rest is pure.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "engine/devices.h"

namespace lockstep::engine {

// A Trainer resolves kAuto to one of the other values before its first step.
enum class Precision { kFp32, kBf16, kFp16, kAuto };

const char* PrecisionName(Precision precision);  // "bf16"
std::optional<Precision> PrecisionNamed(std::string_view name);

// What `auto` means on a device (nothing: a CPU): bf16 where the GPU computes in it, which those of compute capability
// 8.0 and later do; else fp32. Never fp16: it needs a loss scale, and may need one that the model was tried with.
Precision AutoPrecision(const std::optional<GpuFacts>& gpu);

inline at::ScalarType ComputeType(Precision precision) {
  return precision == Precision::kBf16 ? at::kBFloat16 : precision == Precision::kFp16 ? at::kHalf : at::kFloat;
}

class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, bool enabled, at::ScalarType type)
      : device_(device),
        was_enabled_(at::autocast::is_autocast_enabled(device)),
        old_type_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device, enabled);
    if (enabled) at::autocast::set_autocast_dtype(device, type);
    at::autocast::increment_nesting();
  }
  AutocastGuard(at::DeviceType device, Precision precision)
      : AutocastGuard(device, ComputeType(precision) != at::kFloat, ComputeType(precision)) {}
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, was_enabled_);
    at::autocast::set_autocast_dtype(device_, old_type_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_;
  at::ScalarType old_type_;
};

}  // namespace lockstep::engine
