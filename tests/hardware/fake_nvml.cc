// A library with NVML's interface and no driver: the devices come from LOCKSTEP_FAKE_NVML. A GPU is its UUID, with its
// MIG devices behind a colon; a lone colon is MIG mode without any; "!" is a device that fell off the bus; "fail" is a
// driver that does not start, "fail=18" one that says why.
//
//   LOCKSTEP_FAKE_NVML="GPU-aaa,GPU-bbb:MIG-1+MIG-2,GPU-ccc:"
//
// What a GPU says follows its UUID as ";name=value": pci=0000:18:00, ecc=uncorrected errors, remap=pending|failed,
// recovery=0..5, throttle=bits, xid=one event, falls=readings until it falls off the bus, pid=first process
// (pid2=second), links=active/all, fabric=state, cluster=clique. The answers are those of an H800 otherwise. Built once
// with everything and once as an old driver that lacks what came after version 450 (LOCKSTEP_OLD_NVML).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

struct Device {
  std::string uuid;
  bool mig = false;
  std::vector<Device> parts;
  std::map<std::string, std::string> says;
};

[[maybe_unused]] constexpr int kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kDriver = 9, kLost = 15,
                               kShort = 7, kVersion = 25;
std::vector<Device> devices;
bool running = false;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at; (at = text.find(separator, from)) != std::string::npos; from = at + 1)
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

Device Parse(const std::string& item) {
  const std::vector<std::string> words = Split(item, ';');
  const size_t colon = words[0].find(':');
  Device device{words[0].substr(0, colon), colon != std::string::npos, {}, {}};
  if (device.mig && colon + 1 < words[0].size())
    for (const std::string& mig : Split(words[0].substr(colon + 1), '+')) device.parts.push_back({mig, false, {}, {}});
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    device.says[words[i].substr(0, equals)] = equals == std::string::npos ? "" : words[i].substr(equals + 1);
  }
  return device;
}

const Device& At(void* device) { return *static_cast<Device*>(device); }

bool Says(void* device, const char* name, std::string* value) {
  const auto it = At(device).says.find(name);
  if (it == At(device).says.end()) return false;
  *value = it->second;
  return true;
}

unsigned long long NumberOf(void* device, const char* name, unsigned long long otherwise) {
  std::string value;
  return Says(device, name, &value) ? std::strtoull(value.c_str(), nullptr, 0) : otherwise;
}

int Put(const char* value, char* text, unsigned length) {
  if (std::strlen(value) + 1 > length) return kShort;
  std::memcpy(text, value, std::strlen(value) + 1);
  return kSuccess;
}

int Set(unsigned* out, unsigned value) {
  *out = value;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* spec = std::getenv("LOCKSTEP_FAKE_NVML");
  if (!spec || std::strcmp(spec, "fail") == 0) return kDriver;
  if (std::strncmp(spec, "fail=", 5) == 0) return std::atoi(spec + 5);
  devices.clear();
  if (*spec)
    for (const std::string& item : Split(spec, ',')) devices.push_back(Parse(item));
  running = true;
  return kSuccess;
}

int nvmlShutdown() {
  running = false;
  return kSuccess;
}

// Answers also when the driver does not start.
int nvmlSystemGetNVMLVersion(char* text, unsigned length) { return Put("12.535.161.08", text, length); }
int nvmlSystemGetDriverVersion(char* text, unsigned length) { return Put("535.161.08", text, length); }
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 12020;
  return kSuccess;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices.size());
  return running ? kSuccess : kInvalid;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= devices.size()) return kInvalid;
  if (devices[index].uuid == "!") return kLost;
  *device = &devices[index];
  return kSuccess;
}

int nvmlDeviceGetUUID(void* device, char* text, unsigned length) { return Put(At(device).uuid.c_str(), text, length); }
int nvmlDeviceGetName(void*, char* text, unsigned length) { return Put("NVIDIA H800", text, length); }

// Device i sits on bus 0x10 + i unless it says otherwise.
int nvmlDeviceGetPciInfo_v3(void* device, void* info) {
  struct Pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  };
  auto* pci = static_cast<Pci*>(info);
  *pci = {};
  pci->bus = 0x10 + static_cast<unsigned>(static_cast<Device*>(device) - devices.data());
  std::string place;
  if (Says(device, "pci", &place)) std::sscanf(place.c_str(), "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  // GeForce and older cards know no MIG and say so.
  if (At(device).uuid.rfind("GPU-old", 0) == 0) return kNotSupported;
  *current = *pending = At(device).mig ? 1 : 0;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) { return Set(count, 7); }

int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** mig) {
  std::vector<Device>& parts = static_cast<Device*>(device)->parts;
  if (index >= parts.size()) return kNotFound;
  *mig = &parts[index];
  return kSuccess;
}

int nvmlDeviceGetMemoryInfo(void*, void* info) {  // total, free, used
  auto* memory = static_cast<unsigned long long*>(info);
  memory[0] = 85899345920ull, memory[1] = 84825604096ull, memory[2] = 1073741824ull;
  return kSuccess;
}

int nvmlDeviceGetEccMode(void* device, unsigned* current, unsigned* pending) {
  if (At(device).uuid.rfind("GPU-old", 0) == 0) return kNotSupported;
  *current = *pending = 1;
  return kSuccess;
}

int nvmlDeviceGetTotalEccErrors(void* device, unsigned type, unsigned counter, unsigned long long* count) {
  if (counter != 0) return kInvalid;  // the scan asks for those since the driver was loaded
  *count = type == 1 ? NumberOf(device, "ecc", 0) : 2;
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void*, unsigned type, unsigned* clock) { return Set(clock, type == 2 ? 2619 : 345); }
int nvmlDeviceGetMaxClockInfo(void*, unsigned type, unsigned* clock) { return Set(clock, type == 2 ? 2619 : 1980); }
int nvmlDeviceGetTemperature(void* device, unsigned, unsigned* celsius) {
  auto& says = static_cast<Device*>(device)->says;
  if (const auto it = says.find("falls"); it != says.end()) {
    const int left = std::atoi(it->second.c_str());
    if (left == 0) return kLost;
    it->second = std::to_string(left - 1);
  }
  return Set(celsius, 34);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) { return Set(milliwatts, 71499); }
int nvmlDeviceGetUtilizationRates(void*, void* info) {
  auto* rates = static_cast<unsigned*>(info);
  rates[0] = 7, rates[1] = 1;
  return kSuccess;
}
int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  *major = 9, *minor = 0;
  return kSuccess;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* value) { return Set(value, 5); }
int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* value) { return Set(value, 5); }
int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* value) { return Set(value, 16); }
int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* value) { return Set(value, 16); }

int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  unsigned up = 8, all = 8;
  std::string text;
  if (Says(device, "links", &text)) std::sscanf(text.c_str(), "%u/%u", &up, &all);
  if (all == 0) return kNotSupported;
  if (link >= all) return kInvalid;
  return Set(active, link < up ? 1 : 0);
}

// The name of this question before 2023.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* bits) {
  *bits = NumberOf(device, "throttle", 1);  // idle
  return kSuccess;
}

#ifndef LOCKSTEP_OLD_NVML

int nvmlDeviceGetMemoryInfo_v2(void*, void* info) {
  struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
  };
  auto* memory = static_cast<Memory*>(info);
  if (memory->version != (sizeof(Memory) | 2u << 24)) return kVersion;
  *memory = {memory->version, 85899345920ull, 600000000ull, 84825604096ull, 473741824ull};
  return kSuccess;
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  std::string how;
  Says(device, "remap", &how);
  *corrected = 0, *uncorrected = how.empty() ? 0 : 1, *pending = how == "pending", *failed = how == "failed";
  return kSuccess;
}

int nvmlDeviceGetFieldValues(void* device, int count, void* values) {
  struct Value {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    unsigned long long value;
  };
  for (int i = 0; i < count; ++i) {
    auto* value = static_cast<Value*>(values) + i;
    value->type = 1;
    value->result = kSuccess;
    if (value->field == 230) {
      value->value = NumberOf(device, "recovery", 0);
    } else if (value->field == 91) {
      std::string links = "8/8";
      Says(device, "links", &links);
      value->value = std::strtoull(links.c_str() + links.find('/') + 1, nullptr, 10);
    } else {
      value->result = kNotSupported;
    }
  }
  return kSuccess;
}

int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) {
  struct Fabric {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
  };
  auto* fabric = static_cast<Fabric*>(info);
  if (fabric->version != (sizeof(Fabric) | 2u << 24)) return kVersion;
  const unsigned version = fabric->version;
  *fabric = {};
  fabric->version = version;
  fabric->state = static_cast<unsigned char>(NumberOf(device, "fabric", 3));
  std::string clique;
  if (Says(device, "cluster", &clique)) {
    for (int i = 0; i < 16; ++i) fabric->cluster[i] = static_cast<unsigned char>(0xa0 + i);
    fabric->clique = static_cast<unsigned>(std::strtoul(clique.c_str(), nullptr, 10));
  }
  return kSuccess;
}

int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) { return Set(milliwatts, 700000); }

int nvmlEventSetCreate(void** set) {
  *set = new std::vector<Device*>;
  return kSuccess;
}
int nvmlEventSetFree(void* set) {
  delete static_cast<std::vector<Device*>*>(set);
  return kSuccess;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  if (types != 0x8) return kNotSupported;
  if (NumberOf(device, "xid", 0) != 0) static_cast<std::vector<Device*>*>(set)->push_back(static_cast<Device*>(device));
  return kSuccess;
}
// Each registered GPU that has an Xid tells it once.
int nvmlEventSetWait_v2(void* set, void* event, unsigned) {
  struct Event {
    void* device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
  };
  auto* waiting = static_cast<std::vector<Device*>*>(set);
  if (waiting->empty()) return 10;  // time-out
  *static_cast<Event*>(event) = {waiting->back(), 0x8, NumberOf(waiting->back(), "xid", 0), 0, 0};
  waiting->pop_back();
  return kSuccess;
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* bits) {
  return nvmlDeviceGetCurrentClocksThrottleReasons(device, bits);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, void* list) {
  struct Process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
  };
  std::vector<Process> found;
  for (const char* name : {"pid", "pid2"})
    if (const unsigned long long pid = NumberOf(device, name, 0))
      found.push_back({static_cast<unsigned>(pid), found.empty() ? 1ull << 30 : ~0ull, ~0u, ~0u});
  if (*count < found.size()) {
    *count = static_cast<unsigned>(found.size());
    return kShort;
  }
  for (size_t i = 0; i < found.size(); ++i) static_cast<Process*>(list)[i] = found[i];
  *count = static_cast<unsigned>(found.size());
  return kSuccess;
}

#endif
}
