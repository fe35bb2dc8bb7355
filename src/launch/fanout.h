// Where the platform started one process for many nodes (a SLURM batch script or an allocation shell), the launcher
// starts itself once on every node through srun and waits. Pure planning here; the caller spawns.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "place/placement.h"

namespace lockstep::launch {

struct FanOut {
  std::vector<std::string> argv;  // srun ... lockstep run ...
  std::vector<std::string> env;   // without variables that would make srun give each launcher a part of the node
};

// `self` is the path of this executable. Placement.starts must be kOnce.
Result<FanOut> PlanFanOut(const RunOptions& options, const place::Environment& env, const place::Placement& placement,
                          const std::string& self);

// Runs it: signals are passed to srun, its exit code is ours.
int RunFanOut(const FanOut& plan);

}  // namespace lockstep::launch
