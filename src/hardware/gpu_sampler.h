// What changes about the GPUs of this machine, read again and again: load, memory, temperature, power, clocks, what
// slows them, errors. NVML stays open in between. One owner, one thread; a call can take as long as the driver likes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hardware/hardware.h"

namespace lockstep::hardware {

class Nvml;

struct GpuReading : GpuState {
  std::optional<int> memory_utilisation;  // percent
  std::optional<int> power_limit_watts;   // enforced
  std::optional<int> xid;                 // the last critical one since Open
};

class GpuSampler {
 public:
  // Null with the reason in *why where there is no NVML. `library` empty: LOCKSTEP_NVML of this process, then
  // libnvidia-ml.so.1. `pci`: only GPUs at these addresses; empty: all.
  static std::unique_ptr<GpuSampler> Open(const std::string& library, const std::vector<std::string>& pci,
                                          std::string* why);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // What changes slowly (limits, errors, processes) is read with every tenth call only and kept in between.
  const std::vector<GpuReading>& Read();

 private:
  GpuSampler() = default;
  void ReadOne(size_t at, bool slow);
  void TakeXids();

  std::unique_ptr<Nvml> nvml_;
  std::vector<void*> devices_;  // null: cannot be opened
  std::vector<GpuReading> gpus_;
  void* events_ = nullptr;
  unsigned reads_ = 0;
};

}  // namespace lockstep::hardware
