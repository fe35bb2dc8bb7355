// What this machine is, read once at the start of a command and handed to Resolve as a plain value. Reads /proc, /sys
// and the driver; starts nothing. One thread.
#pragma once

#include <optional>
#include <string>

#include "place/placement.h"

namespace lockstep::place {

struct MachineOptions {
  // Counts said instead of read (--assume-*).
  std::optional<int> gpus, cpus;
  std::string host;
  // The environment is another process's (--env-file): do not look for its siblings and parents here.
  bool foreign_environment = false;
  // "" but in tests: the folder under which /proc, /sys and /dev are looked up.
  std::string root;
};

// GPUs are those a CUDA program started from `env` would see (see gpus.h). LOCKSTEP_NVML in this process's own
// environment names another NVML library.
Machine ReadMachine(const Environment& env, const MachineOptions& options = {});

// RANK of other processes that run our executable in our cgroup for the same job.
std::vector<int> FindSiblingRanks(const Environment& env, const std::string& root);

// "torchrun (pid 123)" for the nearest ancestor that is a launcher; empty when there is none.
std::string FindOuterLauncher(const std::string& root);

}  // namespace lockstep::place
