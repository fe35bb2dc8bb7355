// What processes and this machine use of CPU and memory, from /proc; a few small files for each process. Plain values,
// any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::hardware {

struct ProcessUse {
  double cpu_seconds = 0;   // of the process, its threads and its children
  uint64_t rss = 0;         // bytes; memory that several of them share counts for each
  std::vector<pid_t> pids;  // the process first
};

// A process with its children and theirs, at most `most` of them. Nothing when it is gone.
std::optional<ProcessUse> UseOfProcess(pid_t pid, size_t most = 64);

struct MachineUse {
  std::optional<double> busy_seconds;                 // of all CPUs since the start of the machine
  std::optional<double> load;                         // average of one minute
  std::optional<uint64_t> memory_used, memory_total;  // bytes; of the cgroup where that is narrower
};

class MachineSampler {
 public:
  // Finds the cgroup that limits our memory, once.
  MachineSampler();
  MachineUse Read() const;
  int cores() const { return cores_; }

 private:
  int cores_ = 1;
  uint64_t limit_ = 0;  // 0: none
  bool v2_ = false;
  std::string cgroup_;
};

}  // namespace lockstep::hardware
