#include "launch/oom.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/digits.h"
#include "base/fd.h"
#include "base/units.h"

namespace lockstep::launch {
namespace {

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The kernel log is a stream of records; what it holds now is read, without waiting for more.
std::string KernelLine(const std::string& path, pid_t pid) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return "";
  const std::string needle = fmt::format("Killed process {} ", pid);
  char record[8192];
  std::string found;
  for (int i = 0; i < 100000; ++i) {
    const ssize_t got = read(fd.get(), record, sizeof record - 1);
    if (got == 0) break;
    if (got < 0) {
      if (errno == EPIPE) continue;  // records were overwritten while reading
      break;
    }
    const std::string text(record, static_cast<size_t>(got));
    const size_t at = text.find(needle);
    if (at == std::string::npos) continue;
    const size_t start = text.rfind(';', at);
    const size_t end = text.find('\n', at);
    found = text.substr(start == std::string::npos ? 0 : start + 1,
                        (end == std::string::npos ? text.size() : end) - (start == std::string::npos ? 0 : start + 1));
  }
  return found;
}

}  // namespace

OomWatch::OomWatch(std::string root) : root_(std::move(root)) {
  // Lines "0::/path" (v2) and "5:memory:/path" (v1).
  std::istringstream lines(ReadText(root_ + "/proc/self/cgroup"));
  std::string line;
  while (std::getline(lines, line)) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      // Inside a container the path may be of the host; then the mount's own root is this cgroup.
      for (const std::string& base : {root_ + "/sys/fs/cgroup" + path, root_ + std::string("/sys/fs/cgroup")}) {
        if (cgroup_.empty() && access((base + "/memory.events").c_str(), R_OK) == 0) cgroup_ = base;
      }
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      for (const std::string& base :
           {root_ + "/sys/fs/cgroup/memory" + path, root_ + std::string("/sys/fs/cgroup/memory")}) {
        if (cgroup_.empty() && access((base + "/memory.oom_control").c_str(), R_OK) == 0) {
          cgroup_ = base;
          v2_ = false;
        }
      }
    }
  }
  kills_before_ = CgroupKills();
}

uint64_t OomWatch::CgroupKills() const {
  if (cgroup_.empty()) return 0;
  std::istringstream text(ReadText(cgroup_ + (v2_ ? "/memory.events" : "/memory.oom_control")));
  std::string key;
  uint64_t value = 0;
  while (text >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return 0;
}

std::string OomWatch::Evidence(pid_t pid) const {
  std::string words = KernelLine(root_ + "/dev/kmsg", pid);
  if (!words.empty()) words = "kernel: " + words;
  const uint64_t kills = CgroupKills();
  if (kills > kills_before_) {
    std::string limit = ReadText(cgroup_ + (v2_ ? "/memory.max" : "/memory.limit_in_bytes"));
    while (!limit.empty() && limit.back() == '\n') limit.pop_back();
    if (const auto bytes = ParseDigits<uint64_t>(limit)) limit = FormatSize(*bytes);
    words += fmt::format(
        "{}out of memory: the kernel killed {} process(es) of this memory cgroup since the start "
        "(oom_kill {} -> {}, limit {})",
        words.empty() ? "" : "; ", kills - kills_before_, kills_before_, kills, limit.empty() ? "unknown" : limit);
  }
  return words;
}

}  // namespace lockstep::launch
