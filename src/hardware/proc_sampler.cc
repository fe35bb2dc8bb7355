#include "hardware/proc_sampler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/digits.h"
#include "base/fd.h"
#include "hardware/cgroups.h"
#include "hardware/cpus.h"
#include "hardware/sys_tree.h"

namespace lockstep::hardware {
namespace {

// One read: these files are made when they are read.
std::string ReadSmall(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[4096];
  const ssize_t size = fd ? ::read(fd.get(), text, sizeof text) : -1;
  return size > 0 ? std::string(text, static_cast<size_t>(size)) : std::string();
}

double Ticks() {
  static const double ticks = static_cast<double>(std::max(1L, sysconf(_SC_CLK_TCK)));
  return ticks;
}

struct OneProcess {
  double cpu = 0;
  uint64_t rss = 0;
};

// Fields 14 to 17 (user, system, and of children that were waited for) and 24 of /proc/<pid>/stat. Its name may hold
// blanks and brackets.
std::optional<OneProcess> ReadProcess(pid_t pid) {
  const std::string text = ReadSmall(fmt::format("/proc/{}/stat", pid));
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  const std::vector<std::string> words = Words(std::string_view(text).substr(bracket + 1));
  if (words.size() < 22) return std::nullopt;
  OneProcess one;
  const auto number = [&](size_t field) {
    return static_cast<double>(ParseDigits<uint64_t>(words[field - 3]).value_or(0));
  };
  one.cpu = (number(14) + number(15) + number(16) + number(17)) / Ticks();
  one.rss = static_cast<uint64_t>(number(24)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return one;
}

}  // namespace

std::optional<ProcessUse> UseOfProcess(pid_t pid, size_t most) {
  ProcessUse use;
  use.pids = {pid};
  for (size_t at = 0; at < use.pids.size(); ++at) {
    const std::optional<OneProcess> one = ReadProcess(use.pids[at]);
    if (!one && at == 0) return std::nullopt;
    if (!one) continue;
    use.cpu_seconds += one->cpu;
    use.rss += one->rss;
    for (const std::string& child : Words(ReadSmall(fmt::format("/proc/{0}/task/{0}/children", use.pids[at])))) {
      const std::optional<int> number = ParseDigits(child);
      if (number && use.pids.size() < most) use.pids.push_back(*number);
    }
  }
  return use;
}

MachineSampler::MachineSampler() : cores_(CountCpus("")) {
  const SysTree tree("");
  const CgroupFolders memory = CgroupOf(tree, "memory");
  v2_ = memory.v2;
  for (const std::string& folder : memory.folders) {
    const auto max = tree.Number(folder + (v2_ ? "/memory.max" : "/memory.limit_in_bytes"));
    if (!max || *max <= 0 || *max >= (int64_t{1} << 62)) continue;
    if (limit_ != 0 && static_cast<uint64_t>(*max) >= limit_) continue;
    limit_ = static_cast<uint64_t>(*max);
    cgroup_ = folder;
  }
}

MachineUse MachineSampler::Read() const {
  MachineUse use;
  // "cpu  user nice system idle iowait irq softirq steal ..."
  const std::vector<std::string> cpu = Words(ReadSmall("/proc/stat").substr(0, 512));
  if (cpu.size() > 8 && cpu[0] == "cpu") {
    double busy = 0;
    for (const size_t field : {1, 2, 3, 6, 7})
      busy += static_cast<double>(ParseDigits<uint64_t>(cpu[field]).value_or(0));
    use.busy_seconds = busy / Ticks();
  }
  const std::string load = ReadSmall("/proc/loadavg");
  if (!load.empty()) use.load = std::strtod(load.c_str(), nullptr);
  const std::string memory = ReadSmall("/proc/meminfo");
  const auto kib = [&](std::string_view name) -> std::optional<uint64_t> {
    const auto number = LeadingDigits<uint64_t>(LineValue(memory, name, ':'));
    return number ? std::optional<uint64_t>(*number << 10) : std::nullopt;
  };
  const auto total = kib("MemTotal"), available = kib("MemAvailable");
  use.memory_total = total;
  if (total && available) use.memory_used = *total - std::min(*total, *available);
  if (limit_ == 0 || (total && limit_ >= *total)) return use;
  const SysTree tree("");
  const auto now = tree.Number(cgroup_ + (v2_ ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!now || *now < 0) return use;
  const auto cache =
      ToNumber(LineValue(tree.Text(cgroup_ + "/memory.stat"), v2_ ? "inactive_file" : "total_inactive_file", ' '));
  use.memory_total = limit_;
  use.memory_used = static_cast<uint64_t>(std::max<int64_t>(0, *now - std::max<int64_t>(0, cache.value_or(0))));
  return use;
}

}  // namespace lockstep::hardware
