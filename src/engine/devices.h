// The GPUs this process computes on, as CUDA shows them. A build without CUDA has none, whatever torch package it runs
// with. Any thread.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep::engine {

#ifdef LOCKSTEP_CUDA
inline constexpr bool kBuiltForGpus = true;
#else
inline constexpr bool kBuiltForGpus = false;
#endif

struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  uint64_t memory = 0;       // bytes
};

// 0 also where the driver is missing or too old for this CUDA.
int VisibleGpus();

// Nothing for a CPU.
std::optional<GpuFacts> DescribeGpu(at::Device device);

// The error of `setting` ("train.device: cuda") where VisibleGpus() is 0.
Status NoGpuFor(std::string_view setting);

}  // namespace lockstep::engine
