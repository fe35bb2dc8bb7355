// Limits of this process and of its cgroup.
#include <cstdint>

#include "base/text.h"
#include "hardware/cgroups.h"
#include "hardware/hardware_parts.h"

namespace lockstep::hardware {
namespace {

struct Pair {
  std::optional<uint64_t> soft, hard;
};

// "Max locked memory         8388608              unlimited            bytes"
Pair LimitOf(const std::string& limits, std::string_view name) {
  for (const std::string& line : Split(limits, '\n')) {
    if (!line.starts_with(name)) continue;
    const std::vector<std::string> words = Words(std::string_view(line).substr(name.size()));
    if (words.size() < 2) continue;
    auto value = [](const std::string& word) -> std::optional<uint64_t> {
      if (word == "unlimited") return UINT64_MAX;
      const auto number = ToNumber(word);
      return number ? std::optional<uint64_t>(static_cast<uint64_t>(*number)) : std::nullopt;
    };
    return {value(words[0]), value(words[1])};
  }
  return {};
}

struct Use {
  std::optional<uint64_t> max, now;
};

// The narrowest limit above us and what is used of it; without a limit the use of our own cgroup.
Use Narrowest(const SysTree& tree, const CgroupFolders& cgroup, const std::string& max_file,
              const std::string& now_file, std::string* where) {
  Use use;
  for (const std::string& folder : cgroup.folders) {
    const auto max = tree.Number(folder + "/" + max_file);  // "max": no number
    const auto now = tree.Number(folder + "/" + now_file);
    const bool limits = max && *max >= 0 && *max < (int64_t{1} << 62);  // version 1 writes a huge number for none
    if (limits && (!use.max || static_cast<uint64_t>(*max) < *use.max)) {
      use.max = static_cast<uint64_t>(*max);
      use.now = now ? std::optional<uint64_t>(static_cast<uint64_t>(*now)) : std::nullopt;
      *where = folder;
    } else if (!use.max && !use.now && now) {
      use.now = static_cast<uint64_t>(*now);
      *where = folder;
    }
  }
  return use;
}

}  // namespace

void ScanLimits(const SysTree& tree, Hardware* here) {
  Limits& limits = here->limits;
  const std::string text = tree.Text("/proc/self/limits");
  if (text.empty()) here->notes.push_back("/proc/self/limits cannot be read: the process limits are unknown");
  limits.memlock = LimitOf(text, "Max locked memory").soft;
  limits.nofile = LimitOf(text, "Max open files").soft;
  limits.nofile_hard = LimitOf(text, "Max open files").hard;
  limits.nproc = LimitOf(text, "Max processes").soft;
  limits.stack = LimitOf(text, "Max stack size").soft;
  limits.core = LimitOf(text, "Max core file size").soft;

  std::string where;
  const CgroupFolders pids = CgroupOf(tree, "pids");
  const Use processes = Narrowest(tree, pids, "pids.max", "pids.current", &where);
  limits.pids_max = processes.max;
  limits.pids_now = processes.now;
  const CgroupFolders memory = CgroupOf(tree, "memory");
  const Use bytes = memory.v2 ? Narrowest(tree, memory, "memory.max", "memory.current", &where)
                              : Narrowest(tree, memory, "memory.limit_in_bytes", "memory.usage_in_bytes", &where);
  limits.memory_max = bytes.max;
  limits.memory_now = bytes.now;
  if (limits.memory_now) {
    // Cache of files counts as used until somebody needs the memory.
    const std::string stat = tree.Text(where + "/memory.stat");
    const auto cache = ToNumber(LineValue(stat, memory.v2 ? "inactive_file" : "total_inactive_file", ' '));
    if (cache && *cache > 0) limits.memory_now = *limits.memory_now - std::min<uint64_t>(*limits.memory_now, *cache);
  }
  if (const auto quota = FindCpuQuota(tree)) limits.cpu_quota = quota->cores;
}

}  // namespace lockstep::hardware
