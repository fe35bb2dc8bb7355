#include "hardware/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>

#include "base/text.h"
#include "hardware/sys_tree.h"

namespace lockstep::hardware {
namespace {

template <typename F>
bool Load(void* library, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  return *out != nullptr;
}

const char* ErrorWords(NvmlReturn code) {
  switch (code) {
    case 1:
      return "NVML is not started";
    case 4:
      return "no permission";
    case 9:
      return "the NVIDIA driver is not loaded";
    case 10:
      return "time-out";
    case 11:
      return "the GPU's interrupts do not arrive";
    case 12:
      return "the NVIDIA library cannot be loaded";
    case 14:
      return "the infoROM is corrupt";
    case 15:
      return "the GPU is lost: it fell off the bus";
    case 16:
      return "the GPU must be reset";
    case 17:
      return "the control device is blocked by the operating system or a cgroup";
    case 18:
      return "driver and library have different versions";
    case 20:
      return "out of memory";
    case 28:
      return "no GPU found";
    case 999:
      return "an error inside the driver";
    default:
      return "failed";
  }
}

std::string OwnVersion(NvmlReturn (*ask)(char*, unsigned)) {
  char text[96] = {};
  if (!ask || ask(text, sizeof text) != kNvmlSuccess) return "";
  std::string version(text, strnlen(text, sizeof text));
  // "12.535.161.08": the CUDA version it belongs to comes first; drivers count in hundreds.
  const size_t dot = version.find('.');
  if (dot < 3 && version.find('.', dot + 1) != std::string::npos) version.erase(0, dot + 1);
  return version;
}

std::string WhyNotStarted(const std::string& path, NvmlReturn code, const std::string& version) {
  std::string text = fmt::format("{} does not start: {}", path, NvmlError(code));
  if (code != kNvmlVersionMismatch) return text;
  const std::string kernel = SysTree("").Text("/sys/module/nvidia/version");
  if (!version.empty()) text += fmt::format("; the library is {}", version);
  if (!kernel.empty()) text += fmt::format(", the loaded kernel module {}", kernel);
  return text + "; a reboot (or reloading the modules) after the driver update is missing";
}

}  // namespace

std::string NvmlError(NvmlReturn code) { return fmt::format("{} (NVML error {})", ErrorWords(code), code); }

std::unique_ptr<Nvml> Nvml::Open(const std::string& library, std::string* why) {
  const std::string path = library.empty() ? "libnvidia-ml.so.1" : library;
  std::unique_ptr<Nvml> nvml(new Nvml);
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = dlerror();
    *why = fmt::format("{} cannot be loaded ({})", path, reason ? reason : "unknown reason");
    return nullptr;
  }
  nvml->library_ = handle;
  NvmlReturn (*init)() = nullptr;
  if (!Load(handle, "nvmlInit_v2", &init) || !Load(handle, "nvmlShutdown", &nvml->shutdown_) ||
      !Load(handle, "nvmlDeviceGetCount_v2", &nvml->count) ||
      !Load(handle, "nvmlDeviceGetHandleByIndex_v2", &nvml->device) ||
      !Load(handle, "nvmlDeviceGetUUID", &nvml->uuid)) {
    nvml->shutdown_ = nullptr;
    *why = path + " lacks a function of NVML";
    return nullptr;
  }
  auto optional = [&](const char* name, auto* out) {
    if (!Load(handle, name, out)) nvml->missing_.emplace_back(name);
  };
  optional("nvmlSystemGetNVMLVersion", &nvml->nvml_version);
  if (const NvmlReturn failed = init(); failed != kNvmlSuccess) {
    nvml->shutdown_ = nullptr;  // nothing to shut down
    *why = WhyNotStarted(path, failed, OwnVersion(nvml->nvml_version));
    return nullptr;
  }
  optional("nvmlDeviceGetPciInfo_v3", &nvml->pci);
  optional("nvmlDeviceGetMigMode", &nvml->mig_mode);
  optional("nvmlDeviceGetMaxMigDeviceCount", &nvml->mig_max);
  optional("nvmlDeviceGetMigDeviceHandleByIndex", &nvml->mig_device);
  optional("nvmlSystemGetDriverVersion", &nvml->driver_version);
  optional("nvmlSystemGetCudaDriverVersion_v2", &nvml->cuda_version);
  optional("nvmlDeviceGetName", &nvml->name);
  optional("nvmlDeviceGetMemoryInfo", &nvml->memory);
  optional("nvmlDeviceGetMemoryInfo_v2", &nvml->memory_v2);
  optional("nvmlDeviceGetEccMode", &nvml->ecc_mode);
  optional("nvmlDeviceGetTotalEccErrors", &nvml->ecc_total);
  optional("nvmlDeviceGetRemappedRows", &nvml->remapped);
  optional("nvmlDeviceGetFieldValues", &nvml->fields);
  optional("nvmlDeviceGetNvLinkState", &nvml->nvlink_state);
  optional("nvmlDeviceGetGpuFabricInfoV", &nvml->fabric_v);
  if (!nvml->fabric_v) Load(handle, "nvmlDeviceGetGpuFabricInfo", &nvml->fabric);
  optional("nvmlDeviceGetClockInfo", &nvml->clock);
  optional("nvmlDeviceGetMaxClockInfo", &nvml->clock_max);
  // The older name of the same function.
  if (!Load(handle, "nvmlDeviceGetCurrentClocksEventReasons", &nvml->clock_reasons))
    optional("nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->clock_reasons);
  optional("nvmlDeviceGetTemperature", &nvml->temperature);
  optional("nvmlDeviceGetPowerUsage", &nvml->power);
  optional("nvmlDeviceGetUtilizationRates", &nvml->utilisation);
  optional("nvmlDeviceGetCudaComputeCapability", &nvml->capability);
  optional("nvmlDeviceGetCurrPcieLinkGeneration", &nvml->pcie_gen);
  optional("nvmlDeviceGetMaxPcieLinkGeneration", &nvml->pcie_gen_max);
  optional("nvmlDeviceGetCurrPcieLinkWidth", &nvml->pcie_width);
  optional("nvmlDeviceGetMaxPcieLinkWidth", &nvml->pcie_width_max);
  if (!Load(handle, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes))
    optional("nvmlDeviceGetComputeRunningProcesses_v2", &nvml->processes);
  // Only the sampler asks these; a scan has nothing to note where they are missing.
  Load(handle, "nvmlDeviceGetEnforcedPowerLimit", &nvml->power_limit);
  Load(handle, "nvmlEventSetCreate", &nvml->event_set);
  Load(handle, "nvmlDeviceRegisterEvents", &nvml->event_register);
  Load(handle, "nvmlEventSetWait_v2", &nvml->event_wait);
  Load(handle, "nvmlEventSetFree", &nvml->event_free);
  return nvml;
}

Nvml::~Nvml() {
  if (shutdown_) shutdown_();
  if (library_) dlclose(library_);
}

std::string NvmlLibraryVersion(const Nvml& nvml) { return OwnVersion(nvml.nvml_version); }

}  // namespace lockstep::hardware
