// The state of each GPU, by NVML; without it what the kernel module shows in /proc.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "hardware/gpus.h"
#include "hardware/hardware_parts.h"
#include "hardware/nvml.h"

namespace lockstep::hardware {
namespace {

// Field and enumeration values of nvml.h.
constexpr unsigned kRecoveryAction = 230, kLinkCount = 91;
constexpr unsigned kClockSm = 1, kClockMemory = 2;
constexpr unsigned kMaxLinks = 36;

template <typename F, typename... A>
std::optional<int> Ask(F function, NvmlDevice device, A... arguments) {
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

std::optional<uint64_t> AskField(const Nvml& nvml, NvmlDevice device, unsigned field) {
  if (!nvml.fields) return std::nullopt;
  NvmlFieldValue value{};
  value.field = field;
  if (nvml.fields(device, 1, &value) != kNvmlSuccess || value.result != kNvmlSuccess) return std::nullopt;
  switch (value.type) {
    case 1:
      return value.value.ui;
    case 2:
      return value.value.ul;
    case 3:
      return value.value.ull;
    case 4:
      return static_cast<uint64_t>(value.value.sll);
    case 5:
      return static_cast<uint64_t>(value.value.si);
    case 6:
      return value.value.us;
    default:
      return std::nullopt;
  }
}

std::string RecoveryAction(const std::optional<uint64_t>& action) {
  static constexpr const char* kNames[] = {"none",      "gpu reset",       "node reboot",
                                           "drain P2P", "drain and reset", "recover IMEX domain"};
  if (!action) return "";
  return *action < std::size(kNames) ? kNames[*action] : fmt::format("action {}", *action);
}

// Being idle and clocks that somebody asked for slow nothing down that should be fast.
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

void ReadErrors(const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
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
  unsigned corrected = 0, uncorrected = 0, waiting = 0, failed = 0;
  if (nvml.remapped && nvml.remapped(device, &corrected, &uncorrected, &waiting, &failed) == kNvmlSuccess) {
    gpu->remapped_uncorrectable = static_cast<int>(uncorrected);
    gpu->remap_pending = waiting != 0;
    gpu->remap_failed = failed != 0;
  }
  gpu->recovery_action = RecoveryAction(AskField(nvml, device, kRecoveryAction));
}

void ReadLinks(const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
  if (!nvml.nvlink_state) return;
  int there = 0, active = 0;
  for (unsigned link = 0; link < kMaxLinks; ++link) {
    unsigned state = 0;
    const NvmlReturn result = nvml.nvlink_state(device, link, &state);
    if (result != kNvmlSuccess) {
      if (link == 0 && result != kNvmlSuccess && !AskField(nvml, device, kLinkCount).value_or(0)) return;  // no NVLink
      continue;
    }
    ++there;
    active += state == 1;
  }
  if (const auto count = AskField(nvml, device, kLinkCount); count && *count <= kMaxLinks)
    there = std::max(there, static_cast<int>(*count));
  if (there == 0) return;
  gpu->nvlinks = there;
  gpu->nvlinks_active = active;
}

void ReadFabric(const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
  NvmlFabricV2 info{};
  NvmlFabric older{};
  info.version = NvmlVersion<NvmlFabricV2>(2);
  if (nvml.fabric_v) {
    if (nvml.fabric_v(device, &info) != kNvmlSuccess) return;
  } else if (nvml.fabric && nvml.fabric(device, &older) == kNvmlSuccess) {
    std::memcpy(info.cluster, older.cluster, sizeof info.cluster);
    info.status = older.status;
    info.clique = older.clique;
    info.state = older.state;
  } else {
    return;
  }
  static constexpr const char* kStates[] = {"", "not started", "in progress", "completed"};
  gpu->fabric = info.state < std::size(kStates) ? kStates[info.state] : fmt::format("state {}", info.state);
  if (info.state == 3 && info.status != kNvmlSuccess) gpu->fabric = "failed: " + NvmlError(info.status);
  // All zero on machines whose NVSwitches join only their own GPUs.
  if (std::all_of(std::begin(info.cluster), std::end(info.cluster), [](unsigned char c) { return c == 0; })) return;
  std::string id;
  for (size_t i = 0; i < sizeof info.cluster; ++i)
    id += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", info.cluster[i]);
  gpu->fabric_cluster = fmt::format("{}.{}", id, info.clique);
}

void ReadProcesses(const SysTree& tree, const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
  if (!nvml.processes) return;
  std::vector<NvmlProcess> list;
  NvmlReturn result = kNvmlInsufficientSize;
  for (int attempt = 0; attempt < 4 && result == kNvmlInsufficientSize; ++attempt) {
    unsigned count = static_cast<unsigned>(list.size());
    result = nvml.processes(device, &count, list.empty() ? nullptr : list.data());
    // One more than it said: another process may start before the next call.
    list.resize(result == kNvmlInsufficientSize ? std::min(count + 8, 1u << 16) : std::min<size_t>(count, list.size()));
  }
  if (result != kNvmlSuccess) return;
  for (const NvmlProcess& process : list) {
    GpuProcess one;
    one.pid = process.pid;
    one.name = tree.Text(fmt::format("/proc/{}/comm", process.pid));
    if (process.memory != ~0ull) one.memory = process.memory;  // not available: MIG, confidential computing
    gpu->processes.push_back(one);
  }
}

GpuState Read(const SysTree& tree, const Nvml& nvml, NvmlDevice device) {
  GpuState gpu;
  gpu.name = AskText(nvml.name, device);
  gpu.uuid = AskText(nvml.uuid, device);
  NvmlPci pci{};
  if (nvml.pci && nvml.pci(device, &pci) == kNvmlSuccess)
    gpu.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
  unsigned current = 0, pending = 0, slots = 0;
  if (nvml.mig_mode && nvml.mig_mode(device, &current, &pending) == kNvmlSuccess) gpu.mig = current == 1;
  if (gpu.mig && nvml.mig_max && nvml.mig_device && nvml.mig_max(device, &slots) == kNvmlSuccess) {
    for (unsigned i = 0; i < slots; ++i) {
      NvmlDevice mig = nullptr;
      if (nvml.mig_device(device, i, &mig) == kNvmlSuccess) gpu.migs.push_back(AskText(nvml.uuid, mig));
    }
  }
  ReadMemory(nvml, device, &gpu);
  ReadErrors(nvml, device, &gpu);
  ReadLinks(nvml, device, &gpu);
  ReadFabric(nvml, device, &gpu);
  gpu.sm_clock = Ask(nvml.clock, device, kClockSm);
  gpu.sm_clock_max = Ask(nvml.clock_max, device, kClockSm);
  gpu.memory_clock = Ask(nvml.clock, device, kClockMemory);
  gpu.throttle = SlowedBy(nvml, device);
  gpu.temperature = Ask(nvml.temperature, device, 0u);
  if (const auto milliwatts = Ask(nvml.power, device)) gpu.power_watts = *milliwatts / 1000;
  NvmlUtilisation use{};
  if (nvml.utilisation && nvml.utilisation(device, &use) == kNvmlSuccess) gpu.utilisation = static_cast<int>(use.gpu);
  int major = 0, minor = 0;
  if (nvml.capability && nvml.capability(device, &major, &minor) == kNvmlSuccess)
    gpu.compute_capability = fmt::format("{}.{}", major, minor);
  gpu.pcie_gen = Ask(nvml.pcie_gen, device);
  gpu.pcie_gen_max = Ask(nvml.pcie_gen_max, device);
  gpu.pcie_width = Ask(nvml.pcie_width, device);
  gpu.pcie_width_max = Ask(nvml.pcie_width_max, device);
  ReadProcesses(tree, nvml, device, &gpu);
  return gpu;
}

void ReadAll(const SysTree& tree, const Nvml& nvml, Hardware* here) {
  here->gpu_source = "nvml";
  here->driver_library = NvmlLibraryVersion(nvml);
  char text[96] = {};
  if (here->driver.empty() && nvml.driver_version && nvml.driver_version(text, sizeof text) == kNvmlSuccess)
    here->driver = std::string(text, strnlen(text, sizeof text));
  int cuda = 0;
  if (nvml.cuda_version && nvml.cuda_version(&cuda) == kNvmlSuccess)
    here->cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
  unsigned count = 0;
  if (const NvmlReturn failed = nvml.count(&count); failed != kNvmlSuccess)
    here->notes.push_back("NVML cannot count GPUs: " + NvmlError(failed));
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    GpuState gpu;
    if (const NvmlReturn failed = nvml.device(i, &device); failed != kNvmlSuccess) {
      gpu.error = NvmlError(failed);
      here->notes.push_back(fmt::format("GPU {} cannot be opened: {}", i, gpu.error));
    } else {
      gpu = Read(tree, nvml, device);
    }
    gpu.index = static_cast<int>(i);
    here->gpus.push_back(std::move(gpu));
  }
  if (!nvml.missing().empty())
    here->notes.push_back("this driver's NVML lacks " + Join(nvml.missing(), ", ") + ": what they tell is unknown");
}

// GPUs on the bus that nobody sees: a driver that is not loaded, or a card that it gave up.
void CountOnBus(const SysTree& tree, Hardware* here) {
  if (!here->container.empty()) return;  // /sys shows the host's cards, of which a container has what it was given
  int cards = 0;
  for (const std::string& address : tree.Names("/sys/bus/pci/devices")) {
    const std::string at = "/sys/bus/pci/devices/" + address;
    if (tree.Text(at + "/vendor") != "0x10de") continue;
    const std::string kind = tree.Text(at + "/class");
    cards += kind.starts_with("0x0302") || kind.starts_with("0x0300");
  }
  if (cards > static_cast<int>(here->gpus.size()))
    here->notes.push_back(fmt::format("the PCI bus has {} NVIDIA GPU{}, {} {} seen ({})", cards, cards == 1 ? "" : "s",
                                      here->gpus.size(), here->gpus.size() == 1 ? "is" : "are", here->gpu_source));
}

// A GPU that NVML cannot open has no address there; the kernel's list still shows it.
void NameTheLost(const std::vector<Gpu>& kernel, Hardware* here) {
  std::vector<const Gpu*> unclaimed;
  for (const Gpu& gpu : kernel) {
    const bool known =
        std::any_of(here->gpus.begin(), here->gpus.end(), [&](const GpuState& g) { return g.pci == gpu.pci; });
    if (!known) unclaimed.push_back(&gpu);
  }
  std::vector<GpuState*> lost;
  for (GpuState& gpu : here->gpus)
    if (!gpu.error.empty()) lost.push_back(&gpu);
  if (lost.empty() || lost.size() != unclaimed.size()) return;
  for (size_t i = 0; i < lost.size(); ++i) {
    lost[i]->pci = unclaimed[i]->pci;
    lost[i]->uuid = unclaimed[i]->uuid;
    lost[i]->name = unclaimed[i]->name;
  }
}

}  // namespace

void ScanGpus(const SysTree& tree, const Environment& env, const std::string& nvml, Hardware* here) {
  const auto given = env.find("NVIDIA_VISIBLE_DEVICES");
  std::string why;
  std::unique_ptr<Nvml> driver;
  const bool hidden = given != env.end() && given->second == "none";
  // Another machine's tree says nothing about this one's driver.
  if (!hidden && (tree.real() || !nvml.empty())) driver = Nvml::Open(nvml, &why);
  if (driver) {
    ReadAll(tree, *driver, here);
    driver.reset();
    NameTheLost(GpusOfKernel(tree.root()).gpus, here);
  } else if (hidden) {
    here->gpu_source = "NVIDIA_VISIBLE_DEVICES=none";
  } else {
    const GpuList list = GpusOfKernel(tree.root());
    here->gpu_source = list.source;
    // Without driver and library there is nothing to explain.
    if (!why.empty() &&
        (!list.gpus.empty() || !here->driver.empty() || why.find("does not start") != std::string::npos))
      here->notes.push_back(why);
    for (size_t i = 0; i < list.gpus.size(); ++i) {
      GpuState gpu;
      gpu.index = static_cast<int>(i);
      gpu.name = list.gpus[i].name;
      gpu.uuid = list.gpus[i].uuid;
      gpu.pci = list.gpus[i].pci;
      here->gpus.push_back(gpu);
    }
  }
  std::vector<Gpu> usable;
  for (GpuState& gpu : here->gpus) {
    if (gpu.error.empty()) usable.push_back({gpu.uuid, gpu.mig, gpu.migs, gpu.pci, gpu.name});
    if (gpu.pci.empty()) continue;
    const PciPlace place = PciOf(tree, "/sys/bus/pci/devices/" + gpu.pci);
    gpu.numa = place.numa;
    gpu.pci_path = place.path;
  }
  if (!hidden) CountOnBus(tree, here);
  const Visible visible = CountVisible(env, usable);
  here->gpus_visible = visible.count;
  here->visible_because = visible.because;
}

}  // namespace lockstep::hardware
