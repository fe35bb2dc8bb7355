#include "engine/device_stages.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <iterator>

#include "cuda/kernel_source.h"

namespace lockstep::engine {
namespace {

// clock: last mark, begin of a wait, waited since the mark, delays. Kernels of one stream follow each other: plain
// loads and stores do. Waits before a Begin (a validation's) belong to no stage, as on the host.
constexpr char kSource[] = R"cuda(
__device__ __forceinline__ i64 Now() {
  i64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

extern "C" __global__ void stage_mark(double* seconds, i64* clock, i64 slot, i64 no_stage, i64 collective) {
  i64 delay = clock[3 + slot], begin = Now();
  while (delay > 0 && Now() - begin < delay) {
  }
  i64 now = Now(), passed = clock[0] > 0 ? now - clock[0] : 0, waited = clock[2] < passed ? clock[2] : passed;
  if (slot == no_stage) waited = 0;
  seconds[slot] += 1e-9 * (double)(passed - waited);
  seconds[collective] += 1e-9 * (double)waited;
  clock[0] = now;
  clock[2] = 0;
}

extern "C" __global__ void stage_wait_begin(double*, i64* clock, i64, i64, i64) { clock[1] = Now(); }
extern "C" __global__ void stage_wait_end(double*, i64* clock, i64, i64, i64) { clock[2] += Now() - clock[1]; }
)cuda";

enum Kernel { kMark, kWaitBegin, kWaitEnd, kKernels };
constexpr const char* kNames[] = {"stage_mark", "stage_wait_begin", "stage_wait_end"};
static_assert(std::size(kNames) == kKernels);
constexpr int64_t kDelays = 3;                                   // where they begin
constexpr int64_t kNoStage = static_cast<int64_t>(kStageCount);  // the last slot

cuda::KernelSource& Source() {
  static cuda::KernelSource source("stage times", kSource, {std::begin(kNames), std::end(kNames)});
  return source;
}

c10::Stream CurrentStream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

std::unique_ptr<DeviceStages> DeviceStages::Create(const at::Device& device) {
  if (!device.is_cuda() || !Source().Usable(device, at::kFloat)) return nullptr;
  return std::unique_ptr<DeviceStages>(new DeviceStages(device));
}

DeviceStages::DeviceStages(const at::Device& device)
    : stream_(CurrentStream(device)),
      like_(at::empty({0}, at::dtype(at::kFloat).device(device))),
      seconds_(at::zeros({kNoStage + 1}, at::dtype(at::kDouble).device(device))),
      clock_(at::zeros({kDelays + kNoStage + 1}, at::dtype(at::kLong).device(device))) {}

void DeviceStages::Launch(int kernel, int64_t slot) {
  void *seconds = cuda::Address(seconds_), *clock = cuda::Address(clock_);
  auto no_stage = kNoStage, collective = static_cast<int64_t>(StepStage::kCollective);
  Source().Launch(like_, kernel, {}, {&seconds, &clock, &slot, &no_stage, &collective});
}

void DeviceStages::Begin() { Launch(kMark, kNoStage); }

void DeviceStages::End(StepStage stage) { Launch(kMark, static_cast<int64_t>(stage)); }

void DeviceStages::Wait(bool begins) {
  if (CurrentStream(stream_.device()) == stream_) Launch(begins ? kWaitBegin : kWaitEnd, 0);
}

at::Tensor DeviceStages::Take() {
  at::Tensor seconds = seconds_.narrow(0, 0, kNoStage).clone();
  seconds_.zero_();
  return seconds;
}

void DeviceStages::Delay(StepStage stage, std::chrono::milliseconds each) {
  clock_[kDelays + static_cast<int64_t>(stage)].fill_(std::chrono::nanoseconds(each).count());
}

}  // namespace lockstep::engine
