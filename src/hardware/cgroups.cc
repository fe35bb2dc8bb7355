#include "hardware/cgroups.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::hardware {

CgroupFolders CgroupOf(const SysTree& tree, const std::string& controller) {
  CgroupFolders found;
  for (const std::string& line : Split(tree.Text("/proc/self/cgroup"), '\n')) {
    const std::vector<std::string> fields = Split(line, ':');
    if (fields.size() < 3) continue;
    const bool v2 = fields[1].empty();
    const std::vector<std::string> controllers = Split(fields[1], ',');
    if (!v2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    if (v2 && !found.folders.empty()) continue;  // both are mounted: the controller belongs to the first version
    // The path itself may hold colons.
    std::string path = line.substr(line.find(':', line.find(':') + 1) + 1);
    std::string mount = "/sys/fs/cgroup" + (v2 ? std::string() : "/" + fields[1]);
    if (!v2 && !tree.Exists(mount)) mount = "/sys/fs/cgroup/" + controller;
    std::vector<std::string> folders;
    while (true) {
      const std::string folder = mount + (path == "/" ? "" : path);
      if (tree.Exists(folder)) folders.push_back(folder);
      if (path.empty() || path == "/") break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
    found = {v2, folders};
  }
  return found;
}

std::optional<CpuQuota> FindCpuQuota(const SysTree& tree) {
  std::optional<CpuQuota> least;
  const CgroupFolders cgroup = CgroupOf(tree, "cpu");
  for (const std::string& folder : cgroup.folders) {
    std::optional<int64_t> quota, period;
    if (cgroup.v2) {
      const std::vector<std::string> words = Words(tree.Text(folder + "/cpu.max"));  // "max 100000", "200000 100000"
      if (words.size() == 2) quota = ToNumber(words[0]), period = ToNumber(words[1]);
    } else {
      quota = tree.Number(folder + "/cpu.cfs_quota_us");  // -1: none
      period = tree.Number(folder + "/cpu.cfs_period_us");
    }
    if (!quota || !period || *quota <= 0 || *period <= 0) continue;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    if (cores < 1e6 && (!least || cores < least->cores)) least = {cores, folder};
  }
  return least;
}

}  // namespace lockstep::hardware
