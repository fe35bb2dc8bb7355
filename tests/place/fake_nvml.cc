// A library with NVML's interface and no driver: the devices come from LOCKSTEP_FAKE_NVML. A GPU is its UUID, with its
// MIG devices behind a colon; a lone colon is MIG mode without any; "!" is a device that fell off the bus; "fail" is a
// driver that does not start.
//   LOCKSTEP_FAKE_NVML="GPU-aaa,GPU-bbb:MIG-1+MIG-2,GPU-ccc:"
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Device {
  std::string uuid;
  bool mig = false;
  std::vector<Device> parts;
};

constexpr int kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kDriver = 9, kLost = 15, kShort = 7;
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

}  // namespace

extern "C" {

int nvmlInit_v2() {
  const char* spec = std::getenv("LOCKSTEP_FAKE_NVML");
  if (!spec || std::strcmp(spec, "fail") == 0) return kDriver;
  devices.clear();
  if (*spec)
    for (const std::string& item : Split(spec, ',')) {
      const size_t colon = item.find(':');
      Device device{item.substr(0, colon), colon != std::string::npos, {}};
      if (device.mig && colon + 1 < item.size())
        for (const std::string& mig : Split(item.substr(colon + 1), '+')) device.parts.push_back({mig, false, {}});
      devices.push_back(device);
    }
  running = true;
  return kSuccess;
}

int nvmlShutdown() {
  running = false;
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

int nvmlDeviceGetUUID(void* device, char* text, unsigned length) {
  const std::string& uuid = static_cast<Device*>(device)->uuid;
  if (uuid.size() + 1 > length) return kShort;
  std::memcpy(text, uuid.c_str(), uuid.size() + 1);
  return kSuccess;
}

// Device i sits on bus 0x10 + i.
int nvmlDeviceGetPciInfo_v3(void* device, void* info) {
  struct Pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  };
  auto* pci = static_cast<Pci*>(info);
  *pci = {};
  pci->bus = 0x10 + static_cast<unsigned>(static_cast<Device*>(device) - devices.data());
  return kSuccess;
}

int nvmlDeviceGetMigMode(void* device, unsigned* current, unsigned* pending) {
  // GeForce and older cards know no MIG and say so.
  if (static_cast<Device*>(device)->uuid.rfind("GPU-old", 0) == 0) return kNotSupported;
  *current = *pending = static_cast<Device*>(device)->mig ? 1 : 0;
  return kSuccess;
}

int nvmlDeviceGetMaxMigDeviceCount(void*, unsigned* count) {
  *count = 7;
  return kSuccess;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void* device, unsigned index, void** mig) {
  std::vector<Device>& parts = static_cast<Device*>(device)->parts;
  if (index >= parts.size()) return kNotFound;
  *mig = &parts[index];
  return kSuccess;
}
}
