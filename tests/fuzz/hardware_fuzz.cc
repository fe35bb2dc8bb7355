// The readers of hardware against arbitrary files: the first byte chooses a library, a loader's cache, a kernel log, a
// description in JSON, or a tree of /proc and /sys whose files are cut out of the input. None may crash or hang, and
// what is read must survive the way through JSON.
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "base/files.h"
#include "base/text.h"
#include "hardware/elf_file.h"
#include "hardware/hardware.h"
#include "hardware/hardware_parts.h"
#include "hardware/library_strings.h"
#include "hardware/loader_cache.h"

using namespace lockstep;
using namespace lockstep::hardware;

namespace {

const char* const kFiles[] = {"/proc/net/route",
                              "/proc/net/ipv6_route",
                              "/proc/net/fib_trie",
                              "/proc/net/if_inet6",
                              "/proc/self/limits",
                              "/proc/self/mountinfo",
                              "/proc/self/cgroup",
                              "/proc/self/status",
                              "/proc/meminfo",
                              "/proc/cpuinfo",
                              "/proc/driver/nvidia/version",
                              "/proc/modules",
                              "/etc/os-release",
                              "/dev/kmsg",
                              "/statvfs.json",
                              "/sys/fs/cgroup/memory.max",
                              "/sys/fs/cgroup/cpu.max",
                              "/sys/class/infiniband/mlx5_0/ports/1/rate",
                              "/sys/class/infiniband/mlx5_0/ports/1/state",
                              "/sys/class/infiniband/mlx5_0/ports/1/gids/0",
                              "/sys/class/infiniband/mlx5_0/device/uevent",
                              "/sys/class/net/eth0/speed",
                              "/sys/class/net/eth0/uevent",
                              "/sys/class/net/eth0/flags",
                              "/sys/devices/system/node/node0/meminfo",
                              "/v/pyvenv.cfg",
                              "/v/lib/python3.11/site-packages/x.pth",
                              "/v/lib/python3.11/site-packages/torch/version.py"};

// In memory, made once: the process is not restarted between inputs.
const std::string& Root() {
  static const std::string root = [] {
    std::string path = "/dev/shm/machine-fuzz-XXXXXX";
    if (!mkdtemp(path.data())) abort();
    for (const char* file : kFiles) {
      const std::string at = path + file;
      if (!MakeDirs(at.substr(0, at.rfind('/'))).ok()) abort();
    }
    if (!MakeDirs(path + "/v/bin").ok() || symlink("/bin/sh", (path + "/v/bin/python").c_str()) != 0) abort();
    atexit([] { (void)RemoveAll(Root()); });
    return path;
  }();
  return root;
}

void Put(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void RoundTrip(const Hardware& here) {
  const nlohmann::json json = ToJson(here);
  const Result<Hardware> back = HardwareFromJson(json);
  if (!back.ok() || ToJson(*back) != json) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: {
      const std::string path = Root() + "/library.so";
      Put(path, bytes);
      (void)NamesWithPrefix(path, {"NCCL_"});
      (void)TextAfter(path, "NCCL version ", "0123456789.");
      if (const auto file = ElfFile::Open(path); file.ok()) (void)file->ReadDynamic();
      break;
    }
    case 1:
      (void)ParseLoaderCache(bytes);
      break;
    case 2:
      for (const XidLine& line : FindXids(bytes))
        if (line.xid <= 0 || line.pci.empty()) abort();
      break;
    case 3: {
      const nlohmann::json json = nlohmann::json::parse(bytes, nullptr, false);
      const Result<Hardware> here = HardwareFromJson(json);
      if (!here.ok()) break;
      RoundTrip(*here);
      (void)RouteTo(*here, "10.1.2.3");
      (void)RouteTo(*here, "fd00::1");
      break;
    }
    default: {
      const std::vector<std::string> parts = Split(bytes, '\xff');
      for (size_t i = 0; i < std::size(kFiles); ++i) Put(Root() + kFiles[i], i < parts.size() ? parts[i] : "");
      HardwareOptions options;
      options.root = Root();
      options.env = {{"VIRTUAL_ENV", "/v"}, {"PATH", "/v/bin"}};
      const Hardware here = ScanHardware(options);
      RoundTrip(here);
      (void)RouteTo(here, "10.1.2.3");
    }
  }
  return 0;
}
