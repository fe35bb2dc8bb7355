// The cgroup this process is in, version 1 or 2: the folders whose limits bind it. Reads only; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hardware/sys_tree.h"

namespace lockstep::hardware {

struct CgroupFolders {
  bool v2 = false;
  std::vector<std::string> folders;  // of the process first, then its parents up to the mount; all exist
};

// `controller`: "cpu", "memory", "pids". Inside a container the path of /proc/self/cgroup may lie outside what is
// mounted; its parents, down to the mount itself, are given all the same. A limit anywhere above binds us too.
CgroupFolders CgroupOf(const SysTree& tree, const std::string& controller);

struct CpuQuota {
  double cores = 0;
  std::string folder;  // of the cgroup that has it
};
// The narrowest one; nothing when there is none.
std::optional<CpuQuota> FindCpuQuota(const SysTree& tree);

}  // namespace lockstep::hardware
