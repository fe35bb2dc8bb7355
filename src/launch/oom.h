// Who killed a rank with SIGKILL? The kernel says so in two places: a counter of its cgroup and a line of the kernel
// log. Made once before the ranks start, asked when one died. Any thread; reads files only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace lockstep::launch {

class OomWatch {
 public:
  // `root` is where the files live; tests give a folder of their own.
  explicit OomWatch(std::string root = "");

  // Words such as "the memory cgroup /x killed 1 process (memory.events oom_kill 0 -> 1, limit 2 GiB)" or the kernel's
  // line about this pid; empty when there is no evidence.
  std::string Evidence(pid_t pid) const;

 private:
  uint64_t CgroupKills() const;

  std::string root_;
  std::string cgroup_;  // folder of this process's memory cgroup; empty: none found
  bool v2_ = true;
  uint64_t kills_before_ = 0;
};

}  // namespace lockstep::launch
