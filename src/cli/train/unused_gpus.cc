#include "cli/train/unused_gpus.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/environment.h"
#include "engine/devices.h"
#include "hardware/gpus.h"
#include "place/machine.h"

#ifdef LOCKSTEP_CUDA
#include <cuda_runtime_api.h>
#endif

namespace lockstep::cli {
namespace {

struct Reason {
  std::string why, remedy;
};

Reason WhyNot() {
#ifdef LOCKSTEP_CUDA
  int count = 0;
  return {
      fmt::format("CUDA {}.{} does not start: {}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10,
                  cudaGetErrorString(cudaGetDeviceCount(&count))),
      "`nvidia-smi` tells the driver's version and the CUDA it is good for; update it, or build against a torch for "
      "that CUDA (make build TORCH=/path/to/site-packages/torch)"};
#else
  return {"this lockstep-train was built without CUDA",
          "make build (on a machine with GPUs it builds for them; make build GPU=1 anywhere)"};
#endif
}

}  // namespace

std::string UnusedGpus() {
  const Environment env = CurrentEnvironment();
  const char* library = std::getenv("LOCKSTEP_NVML");
  const int count =
      hardware::CountVisible(env, hardware::FindGpus(env, library == nullptr ? "" : library, "").gpus).count;
  if (count == 0) return "";
  const Reason reason = WhyNot();
  return fmt::format("GPUs        {} on this machine, not used: {}\n  do: {}; train.device: cpu leaves this line out",
                     count, reason.why, reason.remedy);
}

}  // namespace lockstep::cli
