#include "engine/devices.h"

#include <fmt/format.h>
#include <torch/cuda.h>

#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#endif

namespace lockstep::engine {

int VisibleGpus() {
  return kBuiltForGpus && torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
}

std::optional<GpuFacts> DescribeGpu(at::Device device) {
#ifdef LOCKSTEP_CUDA
  if (device.is_cuda()) {
    const cudaDeviceProp* facts = at::cuda::getDeviceProperties(device.has_index() ? device.index() : 0);
    return GpuFacts{facts->name, facts->major, facts->minor, facts->totalGlobalMem};
  }
#endif
  (void)device;
  return std::nullopt;
}

Status NoGpuFor(std::string_view setting) {
  if (!kBuiltForGpus) {
    return Status(Code::kEnvironment, fmt::format("{}: this lockstep-train was built without CUDA", setting),
                  "build one for GPUs (make build GPU=1), or use the CPU");
  }
  return Status(Code::kEnvironment, fmt::format("{}, but no GPU is visible to this process", setting),
                "check CUDA_VISIBLE_DEVICES and the driver, or use the CPU");
}

}  // namespace lockstep::engine
