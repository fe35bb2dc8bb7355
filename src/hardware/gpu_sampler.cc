#include "hardware/gpu_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "hardware/nvml.h"
#include "hardware/nvml_ask.h"

namespace lockstep::hardware {
namespace {

constexpr unsigned kSlowEvery = 10;
constexpr unsigned long long kXidCritical = 0x8;
constexpr int kMostXids = 64;  // of one reading

}  // namespace

std::unique_ptr<GpuSampler> GpuSampler::Open(const std::string& library, const std::vector<std::string>& pci,
                                             std::string* why) {
  const char* other = std::getenv("LOCKSTEP_NVML");
  std::unique_ptr<GpuSampler> sampler(new GpuSampler);
  sampler->nvml_ = Nvml::Open(library.empty() && other != nullptr ? other : library, why);
  if (!sampler->nvml_) return nullptr;
  const Nvml& nvml = *sampler->nvml_;
  unsigned count = 0;
  if (const NvmlReturn failed = nvml.count(&count); failed != kNvmlSuccess) {
    *why = "NVML cannot count GPUs: " + NvmlError(failed);
    return nullptr;
  }
  if (nvml.event_set && nvml.event_register && nvml.event_wait && nvml.event_set(&sampler->events_) != kNvmlSuccess) {
    sampler->events_ = nullptr;
  }
  for (unsigned i = 0; i < count; ++i) {
    GpuReading gpu;
    gpu.index = static_cast<int>(i);
    NvmlDevice device = nullptr;
    if (const NvmlReturn failed = nvml.device(i, &device); failed != kNvmlSuccess) {
      gpu.error = NvmlError(failed);
      device = nullptr;
    } else {
      gpu.name = AskText(nvml.name, device);
      gpu.uuid = AskText(nvml.uuid, device);
      gpu.pci = PciOf(nvml, device);
    }
    // One that is lost has no address: it is shown, because it may be ours.
    if (!pci.empty() && !gpu.pci.empty() && std::find(pci.begin(), pci.end(), gpu.pci) == pci.end()) continue;
    if (device != nullptr && sampler->events_ != nullptr) {
      (void)nvml.event_register(device, kXidCritical, sampler->events_);
    }
    sampler->devices_.push_back(device);
    sampler->gpus_.push_back(std::move(gpu));
  }
  return sampler;
}

GpuSampler::~GpuSampler() {
  if (events_ != nullptr && nvml_->event_free) nvml_->event_free(events_);
}

void GpuSampler::ReadOne(size_t at, bool slow) {
  const Nvml& nvml = *nvml_;
  NvmlDevice device = devices_[at];
  GpuReading& gpu = gpus_[at];
  if (device == nullptr) return;
  unsigned celsius = 0;
  const NvmlReturn heat = nvml.temperature ? nvml.temperature(device, 0u, &celsius) : kNvmlFunctionNotFound;
  if (heat == kNvmlGpuIsLost || heat == kNvmlResetRequired) {
    // Asking again costs seconds and brings it back never.
    GpuReading lost;
    lost.index = gpu.index;
    lost.name = gpu.name;
    lost.uuid = gpu.uuid;
    lost.pci = gpu.pci;
    lost.xid = gpu.xid;
    lost.error = NvmlError(heat);
    gpu = std::move(lost);
    devices_[at] = nullptr;
    return;
  }
  gpu.temperature = heat == kNvmlSuccess ? std::optional<int>(static_cast<int>(celsius)) : std::nullopt;
  NvmlUtilisation use{};
  const bool busy = nvml.utilisation && nvml.utilisation(device, &use) == kNvmlSuccess;
  gpu.utilisation = busy ? std::optional<int>(static_cast<int>(use.gpu)) : std::nullopt;
  gpu.memory_utilisation = busy ? std::optional<int>(static_cast<int>(use.memory)) : std::nullopt;
  ReadMemory(nvml, device, &gpu);
  const auto milliwatts = AskNumber(nvml.power, device);
  gpu.power_watts = milliwatts ? std::optional<int>(*milliwatts / 1000) : std::nullopt;
  gpu.sm_clock = AskNumber(nvml.clock, device, kClockSm);
  gpu.throttle = SlowedBy(nvml, device);
  if (!slow) return;
  gpu.memory_clock = AskNumber(nvml.clock, device, kClockMemory);
  gpu.sm_clock_max = AskNumber(nvml.clock_max, device, kClockSm);
  const auto limit = AskNumber(nvml.power_limit, device);
  gpu.power_limit_watts = limit ? std::optional<int>(*limit / 1000) : std::nullopt;
  ReadEcc(nvml, device, &gpu);
  gpu.processes.clear();
  for (const NvmlProcess& process : ProcessesOn(nvml, device)) gpu.processes.push_back({process.pid, "", {}});
}

void GpuSampler::TakeXids() {
  if (events_ == nullptr) return;
  NvmlEvent event{};
  for (int i = 0; i < kMostXids && nvml_->event_wait(events_, &event, 0) == kNvmlSuccess; ++i) {
    if (event.type != kXidCritical) continue;
    for (size_t at = 0; at < devices_.size(); ++at) {
      if (devices_[at] == event.device) gpus_[at].xid = static_cast<int>(event.data);
    }
  }
}

const std::vector<GpuReading>& GpuSampler::Read() {
  TakeXids();
  const bool slow = reads_++ % kSlowEvery == 0;
  for (size_t at = 0; at < gpus_.size(); ++at) ReadOne(at, slow);
  return gpus_;
}

}  // namespace lockstep::hardware
