#include "hardware/gpus.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "hardware/nvml.h"

namespace lockstep::hardware {
namespace {

std::string Uuid(const Nvml& nvml, NvmlDevice device) {
  char text[96] = {};
  return nvml.uuid(device, text, sizeof text) == kNvmlSuccess ? std::string(text, strnlen(text, sizeof text)) : "";
}

Gpu Describe(const Nvml& nvml, NvmlDevice device) {
  Gpu gpu;
  gpu.uuid = Uuid(nvml, device);
  NvmlPci pci{};
  if (nvml.pci && nvml.pci(device, &pci) == kNvmlSuccess) {
    gpu.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
  }
  unsigned current = 0, pending = 0, slots = 0;
  if (!nvml.mig_mode || !nvml.mig_max || !nvml.mig_device) return gpu;
  if (nvml.mig_mode(device, &current, &pending) != kNvmlSuccess || current != 1) return gpu;
  gpu.mig = true;
  if (nvml.mig_max(device, &slots) != kNvmlSuccess) return gpu;
  for (unsigned i = 0; i < slots; ++i) {
    NvmlDevice mig = nullptr;
    if (nvml.mig_device(device, i, &mig) == kNvmlSuccess) gpu.migs.push_back(Uuid(nvml, mig));
  }
  return gpu;
}

// The GPUs by NVML, or nullopt with the reason in *why.
std::optional<std::vector<Gpu>> AskNvml(const std::string& library, std::string* why) {
  const std::unique_ptr<Nvml> nvml = Nvml::Open(library, why);
  if (!nvml) return std::nullopt;
  unsigned count = 0;
  if (const NvmlReturn uncounted = nvml->count(&count); uncounted != kNvmlSuccess) {
    *why = "NVML cannot count devices: " + NvmlError(uncounted);
    return std::nullopt;
  }
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice device = nullptr;
    // A device that fell off the bus, or is not this container's, is none that CUDA sees.
    if (nvml->device(i, &device) == kNvmlSuccess) gpus.push_back(Describe(*nvml, device));
  }
  return gpus;
}

// The value of "Name:   value" in /proc/driver/nvidia/gpus/<bus>/information.
std::string Field(const std::string& text, std::string_view name) {
  for (const std::string& line : Split(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && Trim(std::string_view(line).substr(0, colon)) == name)
      return std::string(Trim(std::string_view(line).substr(colon + 1)));
  }
  return "";
}

// The kernel's list shows all GPUs of the host, also to a container that was given none: one counts if its device node
// is here.
std::optional<std::vector<Gpu>> AskKernel(const std::string& root) {
  const std::string folder = root + "/proc/driver/nvidia/gpus";
  Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return std::nullopt;
  std::vector<Gpu> gpus;
  struct stat dev{};
  const bool nodes = root.empty() || stat((root + "/dev").c_str(), &dev) == 0;  // a copied tree may have none
  for (const std::string& name : *names) {
    Result<std::string> text = ReadFile(folder + "/" + name + "/information");
    Gpu gpu;
    gpu.pci = name;  // the folder is named by the bus id
    if (text.ok()) {
      gpu.uuid = Field(*text, "GPU UUID");
      gpu.name = Field(*text, "Model");
      const std::string minor = Field(*text, "Device Minor");
      struct stat ignored;
      if (nodes && IsDigits(minor) && stat((root + "/dev/nvidia" + minor).c_str(), &ignored) != 0) continue;
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

std::optional<std::string> Value(const Environment& env, const char* name) {
  auto it = env.find(name);
  if (it == env.end()) return std::nullopt;
  return it->second;
}

// An index as CUDA's strtol reads it: leading digits, whatever follows ("1gpu" is 1); -1 for none.
int LeadingIndex(std::string_view text) {
  text = Trim(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  return ParseDigits(Trim(text.substr(0, end))).value_or(-1);
}

struct Chosen {
  std::vector<std::pair<int, int>> devices;  // GPU index, MIG index or -1
  bool twice = false;
};

void Choose(Chosen* chosen, int gpu, int mig) {
  const std::pair<int, int> device{gpu, mig};
  chosen->twice =
      chosen->twice || std::find(chosen->devices.begin(), chosen->devices.end(), device) != chosen->devices.end();
  chosen->devices.push_back(device);
}

// The one device whose name begins with `prefix`; nullopt for none or several. Without known names (an assumed machine)
// every distinct name is another device, as long as there are some.
std::optional<std::pair<int, int>> ByName(const std::vector<Gpu>& gpus, const std::string& prefix,
                                          std::vector<std::string>* unnamed) {
  std::optional<std::pair<int, int>> found;
  const bool known =
      std::any_of(gpus.begin(), gpus.end(), [](const Gpu& g) { return !g.uuid.empty() || !g.migs.empty(); });
  if (!known) {
    auto at = std::find(unnamed->begin(), unnamed->end(), prefix);
    if (at == unnamed->end()) at = unnamed->insert(unnamed->end(), prefix);
    const int index = static_cast<int>(at - unnamed->begin());
    if (index >= static_cast<int>(gpus.size())) return std::nullopt;
    return std::pair{index, prefix.starts_with("MIG-") ? 0 : -1};
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    auto consider = [&](const std::string& name, int mig) {
      if (!name.starts_with(prefix)) return true;
      if (found) return false;
      found = std::pair{static_cast<int>(i), mig};
      return true;
    };
    bool unique = prefix.starts_with("MIG-") || consider(gpus[i].uuid, -1);
    for (size_t m = 0; unique && m < gpus[i].migs.size(); ++m) unique = consider(gpus[i].migs[m], static_cast<int>(m));
    if (!unique) return std::nullopt;
  }
  return found;
}

}  // namespace

GpuList FindGpus(const Environment& env, const std::string& library, const std::string& root) {
  GpuList list;
  const std::optional<std::string> given = Value(env, "NVIDIA_VISIBLE_DEVICES");
  if (given == "none") {
    list.source = "NVIDIA_VISIBLE_DEVICES=none";
    return list;
  }
  std::string why;
  std::optional<std::vector<Gpu>> gpus = AskNvml(library, &why);
  if (gpus) {
    // "void" does not hide what NVML shows: device plugins that hand GPUs in through CDI set it too.
    list.gpus = std::move(*gpus);
    list.source = "nvml";
    return list;
  }
  if (given == "void") {
    list.source = "NVIDIA_VISIBLE_DEVICES=void";
    return list;
  }
  list = GpusOfKernel(root);
  if (list.source != "no driver") list.note = why;
  return list;
}

GpuList GpusOfKernel(const std::string& root) {
  GpuList list;
  std::optional<std::vector<Gpu>> gpus = AskKernel(root);
  list.source = gpus ? "/proc/driver/nvidia" : "no driver";
  if (gpus) list.gpus = std::move(*gpus);
  return list;
}

Visible CountVisible(const Environment& env, const std::vector<Gpu>& gpus) {
  Visible visible;
  Chosen chosen;
  const std::optional<std::string> list = Value(env, "CUDA_VISIBLE_DEVICES");
  if (!list) {
    for (size_t i = 0; i < gpus.size(); ++i) Choose(&chosen, static_cast<int>(i), -1);
  } else {
    visible.because = "CUDA_VISIBLE_DEVICES=" + Printable(*list, 120);
    const std::string_view kind = list->starts_with("GPU-") ? "GPU-" : list->starts_with("MIG-") ? "MIG-" : "";
    std::vector<std::string> unnamed;
    for (const std::string& item : Split(*list, ',')) {
      const std::string word(Trim(item));
      if (kind.empty()) {
        const int index = LeadingIndex(word);
        if (index < 0 || index >= static_cast<int>(gpus.size())) break;
        Choose(&chosen, index, -1);
      } else {
        std::optional<std::pair<int, int>> device;
        if (word.starts_with(kind)) device = ByName(gpus, word, &unnamed);
        if (!device) break;
        Choose(&chosen, device->first, device->second);
      }
    }
  }
  if (chosen.twice) return visible;
  int whole = 0, parts = 0;
  for (const auto& [gpu, mig] : chosen.devices) {
    // A GPU in MIG mode that was named whole: its first MIG device stands for it.
    if (mig >= 0 || (gpus[gpu].mig && !gpus[gpu].migs.empty()))
      ++parts;
    else if (!gpus[gpu].mig)
      ++whole;
  }
  visible.count = parts > 0 ? 1 : whole;
  for (size_t i = 0; i < chosen.devices.size() && static_cast<int>(i) < visible.count; ++i) {
    visible.pci.push_back(gpus[chosen.devices[i].first].pci);
  }
  if (parts > 0) {
    if (!visible.because.empty()) visible.because += ", ";
    visible.because += "MIG: a process sees one MIG device";
  }
  return visible;
}

}  // namespace lockstep::hardware
