#include "hardware/hardware.h"

#include <cstdlib>

#include "base/text.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

// GPUs of AMD are seen and not read; nobody should hear that there are none.
void LookForAmd(const SysTree& tree, Hardware* here) {
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes";
  int count = 0;
  for (const std::string& node : tree.Names(nodes))
    count += tree.Number(nodes + "/" + node + "/gpu_id").value_or(0) > 0;
  if (count == 0) return;
  here->gpu_source = "amdgpu";
  here->notes.push_back(std::to_string(count) + (count == 1 ? " AMD GPU is" : " AMD GPUs are") +
                        " here; only NVIDIA's are read and counted");
}

}  // namespace

Hardware ScanHardware(const HardwareOptions& options) {
  const SysTree tree(options.root);
  Hardware here;
  if (!tree.Exists("/sys/class/net"))
    here.notes.push_back("/sys cannot be read: RDMA devices, link speeds and NUMA nodes are unknown");
  ScanSystem(tree, options.env, &here);
  ScanNuma(tree, &here);
  ScanInfiniband(tree, &here);
  ScanInterfaces(tree, &here);
  ScanRoutes(tree, &here);
  ScanPolicyRules(tree, &here);
  ScanLimits(tree, &here);
  ScanFilesystems(tree, options.folders, &here);
  if (options.gpus) {
    const char* other = std::getenv("LOCKSTEP_NVML");
    const std::string nvml = !options.nvml.empty() ? options.nvml : other ? other : "";
    ScanGpus(tree, options.env, nvml, &here);
    ScanXids(tree, &here);
    if (here.gpus.empty()) LookForAmd(tree, &here);
  }
  ScanLibraries(tree, options.env, options.interpreter, &here);
  return here;
}

std::optional<int> PciDistance(const std::string& path, const std::string& other) {
  if (path.empty() || other.empty()) return std::nullopt;
  const std::vector<std::string> a = Split(path, '/'), b = Split(other, '/');
  size_t common = 0;
  while (common < a.size() && common < b.size() && a[common] == b[common]) ++common;
  // The first part is the host bridge: a path that joins there joins in the CPU.
  if (common < 2) return std::nullopt;
  return static_cast<int>(a.size() + b.size() - 2 * common);
}

}  // namespace lockstep::hardware
