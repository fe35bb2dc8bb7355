// The parts of a scan, one file each; hardware.cc calls them in order. Each fills its own fields and adds a note where
// something that should be there could not be read. Not used outside this folder. Any thread.
#pragma once

#include "hardware/hardware.h"
#include "hardware/sys_tree.h"

namespace lockstep::hardware {

void ScanSystem(const SysTree& tree, const Environment& env, Hardware* here);
void ScanNuma(const SysTree& tree, Hardware* here);
void ScanInfiniband(const SysTree& tree, Hardware* here);
void ScanInterfaces(const SysTree& tree, Hardware* here);
void ScanRoutes(const SysTree& tree, Hardware* here);
void ScanPolicyRules(const SysTree& tree, Hardware* here);
void ScanLimits(const SysTree& tree, Hardware* here);
void ScanFilesystems(const SysTree& tree, const std::vector<std::string>& folders, Hardware* here);
void ScanGpus(const SysTree& tree, const Environment& env, const std::string& nvml, Hardware* here);
void ScanXids(const SysTree& tree, Hardware* here);  // after ScanGpus
void ScanLibraries(const SysTree& tree, const Environment& env, const std::string& interpreter, Hardware* here);

// Lines about Xids, in their order. `pci` as /sys names it.
struct XidLine {
  std::string pci;
  int xid = 0;
  bool of_switch = false;  // SXid: of an NVSwitch
};
std::vector<XidLine> FindXids(std::string_view kernel_log);

// A file of the network namespace of this thread: "route" is /proc/thread-self/net/route.
std::string NetFile(const SysTree& tree, const std::string& name);

}  // namespace lockstep::hardware
