// NVML, loaded at run time so that one program runs with and without a driver. The part of its interface used here is
// declared here, because its header is not everywhere; the ABI is stable. A function the installed library lacks is a
// null pointer. One owner; any thread, one at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lockstep::hardware {

using NvmlReturn = int;
using NvmlDevice = void*;

inline constexpr NvmlReturn kNvmlSuccess = 0, kNvmlNotSupported = 3, kNvmlNotFound = 6, kNvmlInsufficientSize = 7,
                            kNvmlDriverNotLoaded = 9, kNvmlFunctionNotFound = 13, kNvmlGpuIsLost = 15,
                            kNvmlResetRequired = 16, kNvmlVersionMismatch = 18, kNvmlArgumentVersion = 25;

// "the GPU is lost (NVML error 15)"
std::string NvmlError(NvmlReturn code);

struct NvmlPci {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct NvmlMemory {
  unsigned long long total, free, used;
};

struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct NvmlUtilisation {
  unsigned gpu, memory;
};

struct NvmlProcess {  // of the functions _v2 and _v3
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
};

struct NvmlFieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type;
  NvmlReturn result;
  union {
    double d;
    int si;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    unsigned short us;
  } value;
};

struct NvmlFabric {
  unsigned char cluster[16];
  NvmlReturn status;
  unsigned clique;
  unsigned char state;
};

struct NvmlFabricV2 {
  unsigned version;
  unsigned char cluster[16];
  NvmlReturn status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};

struct NvmlEvent {
  NvmlDevice device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

// The version a structure names itself by: its size and its number.
template <typename T>
constexpr unsigned NvmlVersion(unsigned number) {
  return static_cast<unsigned>(sizeof(T)) | number << 24;
}

class Nvml {
 public:
  // Loaded and started, or null with the reason in *why. `library` empty: libnvidia-ml.so.1.
  static std::unique_ptr<Nvml> Open(const std::string& library, std::string* why);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // NVML's names of the optional functions that this library lacks.
  const std::vector<std::string>& missing() const { return missing_; }

  NvmlReturn (*count)(unsigned*) = nullptr;
  NvmlReturn (*device)(unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*uuid)(NvmlDevice, char*, unsigned) = nullptr;

  // Any of these may be null. Structures are passed as void*, so that a stand-in need not know our names for them.
  NvmlReturn (*pci)(NvmlDevice, void*) = nullptr;  // NvmlPci
  NvmlReturn (*mig_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*mig_max)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*mig_device)(NvmlDevice, unsigned, NvmlDevice*) = nullptr;
  NvmlReturn (*driver_version)(char*, unsigned) = nullptr;
  NvmlReturn (*nvml_version)(char*, unsigned) = nullptr;
  NvmlReturn (*cuda_version)(int*) = nullptr;
  NvmlReturn (*name)(NvmlDevice, char*, unsigned) = nullptr;
  NvmlReturn (*memory)(NvmlDevice, void*) = nullptr;     // NvmlMemory
  NvmlReturn (*memory_v2)(NvmlDevice, void*) = nullptr;  // NvmlMemoryV2
  NvmlReturn (*ecc_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*ecc_total)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;
  NvmlReturn (*remapped)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  NvmlReturn (*fields)(NvmlDevice, int, void*) = nullptr;  // NvmlFieldValue
  NvmlReturn (*nvlink_state)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*fabric)(NvmlDevice, void*) = nullptr;    // NvmlFabric
  NvmlReturn (*fabric_v)(NvmlDevice, void*) = nullptr;  // NvmlFabricV2
  NvmlReturn (*clock)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*clock_max)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*clock_reasons)(NvmlDevice, unsigned long long*) = nullptr;
  NvmlReturn (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;
  NvmlReturn (*power)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*power_limit)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*utilisation)(NvmlDevice, void*) = nullptr;  // NvmlUtilisation
  NvmlReturn (*capability)(NvmlDevice, int*, int*) = nullptr;
  NvmlReturn (*pcie_gen)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*pcie_gen_max)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*pcie_width)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*pcie_width_max)(NvmlDevice, unsigned*) = nullptr;
  NvmlReturn (*processes)(NvmlDevice, unsigned*, void*) = nullptr;  // NvmlProcess
  NvmlReturn (*event_set)(void**) = nullptr;
  NvmlReturn (*event_register)(NvmlDevice, unsigned long long, void*) = nullptr;
  NvmlReturn (*event_wait)(void*, void*, unsigned) = nullptr;  // NvmlEvent
  NvmlReturn (*event_free)(void*) = nullptr;

 private:
  Nvml() = default;
  void* library_ = nullptr;
  NvmlReturn (*shutdown_)() = nullptr;
  std::vector<std::string> missing_;
};

// "535.161.08" of NVML's own "12.535.161.08".
std::string NvmlLibraryVersion(const Nvml& nvml);

}  // namespace lockstep::hardware
