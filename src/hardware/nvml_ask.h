// Questions to NVML that the scan and the sampler share. Not used outside this folder.
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "hardware/hardware.h"
#include "hardware/nvml.h"

namespace lockstep::hardware {

inline constexpr unsigned kClockSm = 1, kClockMemory = 2;

template <typename F, typename... A>
std::optional<int> AskNumber(F function, NvmlDevice device, A... arguments) {
  unsigned value = 0;
  if (!function || function(device, arguments..., &value) != kNvmlSuccess) return std::nullopt;
  return static_cast<int>(value);
}

template <typename F>
std::string AskText(F function, NvmlDevice device) {
  char text[96] = {};
  if (!function || function(device, text, sizeof text) != kNvmlSuccess) return "";
  return std::string(text, strnlen(text, sizeof text));
}

// "0000:3b:00.0"; empty: unknown.
std::string PciOf(const Nvml& nvml, NvmlDevice device);
// What slows the clocks, in NVML's words. Being idle and clocks that somebody asked for are not among it.
std::vector<std::string> SlowedBy(const Nvml& nvml, NvmlDevice device);
void ReadMemory(const Nvml& nvml, NvmlDevice device, GpuState* gpu);
// Mode and counts since the driver was loaded.
void ReadEcc(const Nvml& nvml, NvmlDevice device, GpuState* gpu);
std::vector<NvmlProcess> ProcessesOn(const Nvml& nvml, NvmlDevice device);

}  // namespace lockstep::hardware
