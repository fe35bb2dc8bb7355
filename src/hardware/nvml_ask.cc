#include "hardware/nvml_ask.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::hardware {

std::string PciOf(const Nvml& nvml, NvmlDevice device) {
  NvmlPci pci{};
  if (!nvml.pci || nvml.pci(device, &pci) != kNvmlSuccess) return "";
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

std::vector<std::string> SlowedBy(const Nvml& nvml, NvmlDevice device) {
  struct Reason {
    unsigned long long bit;
    const char* name;
  };
  static constexpr Reason kReasons[] = {
      {0x04, "sw power cap"},          {0x08, "hw slowdown"},         {0x10, "sync boost"},
      {0x20, "sw thermal slowdown"},   {0x40, "hw thermal slowdown"}, {0x80, "hw power brake slowdown"},
      {0x100, "display clock setting"}};
  std::vector<std::string> names;
  unsigned long long bits = 0;
  if (!nvml.clock_reasons || nvml.clock_reasons(device, &bits) != kNvmlSuccess) return names;
  for (const Reason& reason : kReasons)
    if (bits & reason.bit) names.emplace_back(reason.name);
  return names;
}

void ReadMemory(const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
  NvmlMemoryV2 memory{};
  memory.version = NvmlVersion<NvmlMemoryV2>(2);
  NvmlMemory older{};
  // The older call counts what the driver keeps for itself as used.
  if (nvml.memory_v2 && nvml.memory_v2(device, &memory) == kNvmlSuccess) {
    gpu->memory_total = memory.total;
    gpu->memory_used = memory.used;
  } else if (nvml.memory && nvml.memory(device, &older) == kNvmlSuccess) {
    gpu->memory_total = older.total;
    gpu->memory_used = older.used;
  }
}

void ReadEcc(const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
  unsigned current = 0, pending = 0;
  if (nvml.ecc_mode && nvml.ecc_mode(device, &current, &pending) == kNvmlSuccess) gpu->ecc = current == 1;
  auto count = [&](unsigned type) -> std::optional<uint64_t> {
    unsigned long long errors = 0;
    if (!nvml.ecc_total || nvml.ecc_total(device, type, /*volatile*/ 0, &errors) != kNvmlSuccess) return std::nullopt;
    return errors;
  };
  if (gpu->ecc.value_or(false)) {
    gpu->ecc_corrected = count(0);
    gpu->ecc_uncorrected = count(1);
  }
}

std::vector<NvmlProcess> ProcessesOn(const Nvml& nvml, NvmlDevice device) {
  std::vector<NvmlProcess> list;
  if (!nvml.processes) return list;
  NvmlReturn result = kNvmlInsufficientSize;
  for (int attempt = 0; attempt < 4 && result == kNvmlInsufficientSize; ++attempt) {
    unsigned count = static_cast<unsigned>(list.size());
    result = nvml.processes(device, &count, list.empty() ? nullptr : list.data());
    // One more than it said: another process may start before the next call.
    list.resize(result == kNvmlInsufficientSize ? std::min(count + 8, 1u << 16) : std::min<size_t>(count, list.size()));
  }
  if (result != kNvmlSuccess) list.clear();
  return list;
}

}  // namespace lockstep::hardware
