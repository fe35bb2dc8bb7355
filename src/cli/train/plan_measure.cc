// `lockstep-train plan-measure`: speeds of this machine for `lockstep plan --measure`, in a few seconds: matrix
// products and copies on the GPU (or on the CPU), copies between host and GPU, and passes over the host's memory.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/json.h"
#include "cli/train/commands.h"
#include "engine/devices.h"

namespace lockstep::cli {
namespace {

void Synchronize(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// The fastest of some repetitions, within about a second; each waits for the device.
double FastestSeconds(at::Device device, const std::function<void()>& work) {
  work();
  Synchronize(device);
  double best = 0;
  const TimePoint start = Now();
  for (int i = 0; i < 20 && (i < 3 || SecondsSince(start) < 0.8); ++i) {
    const TimePoint one = Now();
    work();
    Synchronize(device);
    const double seconds = SecondsSince(one);
    best = i == 0 ? seconds : std::min(best, seconds);
  }
  return best;
}

nlohmann::json MeasureOn(at::Device device) {
  const at::NoGradGuard no_grad;
  const bool gpu = !device.is_cpu();
  const int64_t n = gpu ? 8192 : 1024;
  const auto options = at::TensorOptions().device(device).dtype(gpu ? at::kBFloat16 : at::kFloat);
  const at::Tensor a = at::ones({n, n}, options), b = at::ones({n, n}, options);
  at::Tensor c = at::empty({n, n}, options);
  const double product = FastestSeconds(device, [&] { at::mm_out(c, a, b); });
  const auto size = static_cast<double>(n);

  const int64_t bytes = gpu ? int64_t{1} << 30 : int64_t{64} << 20;
  const at::Tensor from = at::ones({bytes / 4}, options.dtype(at::kFloat));
  at::Tensor to = at::empty_like(from);
  const double copy = FastestSeconds(device, [&] { to.copy_(from); });

  // As an update does it: two are read and one is written.
  const int64_t host_bytes = int64_t{64} << 20;
  const at::Tensor x = at::ones({host_bytes / 4}), y = at::ones({host_bytes / 4});
  at::Tensor z = at::empty_like(x);
  const double host = FastestSeconds(at::kCPU, [&] { at::add_out(z, x, y); });
  nlohmann::json said = {{"matmul_flops", 2 * size * size * size / product},
                         {"copy_bandwidth", 2 * static_cast<double>(bytes) / copy},
                         {"host_bandwidth", 3 * static_cast<double>(host_bytes) / host}};
  if (gpu) {
    const at::Tensor pinned = at::empty({host_bytes / 4}, at::TensorOptions().dtype(at::kFloat).pinned_memory(true));
    at::Tensor up = at::empty({host_bytes / 4}, options.dtype(at::kFloat));
    const double link = FastestSeconds(device, [&] { up.copy_(pinned, /*non_blocking=*/true); });
    said["host_link"] = static_cast<double>(host_bytes) / link;
  }
  return said;
}

}  // namespace

int PlanMeasureMain(int argc, char** argv) {
  Arguments args("Speeds of this machine (for `lockstep plan --measure`).", "lockstep-train plan-measure");
  bool cpu = false;
  args.Flag("--cpu", &cpu, "of the cores, also where there is a GPU");
  if (const auto code = args.Parse(argc, argv)) return *code;
  if (!cpu && engine::VisibleGpus() == 0) {
    const Status none = engine::NoGpuFor("--measure");
    fmt::print(stderr, "lockstep plan: {}\n", none.ToString());
    return ExitCode(none);
  }
  fmt::print("{}\n", ToJsonLine(MeasureOn(cpu ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0))));
  return kExitOk;
}

}  // namespace lockstep::cli
