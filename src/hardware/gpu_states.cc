// The state of each GPU, by NVML; without it what the kernel module shows in /proc.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "hardware/gpus.h"
#include "hardware/hardware_parts.h"
#include "hardware/nvml.h"
#include "hardware/nvml_ask.h"

namespace lockstep::hardware {
namespace {

// Field and enumeration values of nvml.h.
constexpr unsigned kRecoveryAction = 230, kLinkCount = 91;
constexpr unsigned kMaxLinks = 36;

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

void ReadErrors(const Nvml& nvml, NvmlDevice device, GpuState* gpu) {
  ReadEcc(nvml, device, gpu);
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
  for (const NvmlProcess& process : ProcessesOn(nvml, device)) {
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
  gpu.pci = PciOf(nvml, device);
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
  gpu.sm_clock = AskNumber(nvml.clock, device, kClockSm);
  gpu.sm_clock_max = AskNumber(nvml.clock_max, device, kClockSm);
  gpu.memory_clock = AskNumber(nvml.clock, device, kClockMemory);
  gpu.throttle = SlowedBy(nvml, device);
  gpu.temperature = AskNumber(nvml.temperature, device, 0u);
  if (const auto milliwatts = AskNumber(nvml.power, device)) gpu.power_watts = *milliwatts / 1000;
  NvmlUtilisation use{};
  if (nvml.utilisation && nvml.utilisation(device, &use) == kNvmlSuccess) gpu.utilisation = static_cast<int>(use.gpu);
  int major = 0, minor = 0;
  if (nvml.capability && nvml.capability(device, &major, &minor) == kNvmlSuccess)
    gpu.compute_capability = fmt::format("{}.{}", major, minor);
  gpu.pcie_gen = AskNumber(nvml.pcie_gen, device);
  gpu.pcie_gen_max = AskNumber(nvml.pcie_gen_max, device);
  gpu.pcie_width = AskNumber(nvml.pcie_width, device);
  gpu.pcie_width_max = AskNumber(nvml.pcie_width_max, device);
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
