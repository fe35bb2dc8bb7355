#include "hardware/cpus.h"

#include <sched.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "hardware/cgroups.h"
#include "hardware/sys_tree.h"

namespace lockstep::hardware {
namespace {

int AffinityCpus(const std::string& root) {
  // Of the machine that the tree describes, where it says so.
  if (!root.empty()) {
    const auto count = CountList(LineValue(SysTree(root).Text("/proc/self/status"), "Cpus_allowed_list", ':'));
    if (count) return *count;
    if (const auto online = CountList(SysTree(root).Text("/sys/devices/system/cpu/online"))) return *online;
  }
  for (int cpus = 1024; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int failed = sched_getaffinity(0, bytes, set);
    const int count = failed == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (failed == 0) return std::max(count, 1);
  }
  return 1;
}

}  // namespace

int CountCpus(const std::string& root) {
  const int allowed = AffinityCpus(root);
  const std::optional<CpuQuota> quota = FindCpuQuota(SysTree(root));
  return std::max(1, quota ? std::min(allowed, static_cast<int>(quota->cores)) : allowed);
}

}  // namespace lockstep::hardware
