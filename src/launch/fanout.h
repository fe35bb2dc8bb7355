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

// srun does not pass stop signals on: SIGTERM makes it kill the step, the first SIGINT only makes it talk. So they
// travel as bytes on the standard input of the launcher of node 0, which is told so by this variable ("stdin"). When
// the input ends, the command that fanned out is gone.
inline constexpr char kControlVariable[] = "LOCKSTEP_CONTROL";

// Runs it: signals are passed on, srun's exit code is ours.
int RunFanOut(const FanOut& plan);

}  // namespace lockstep::launch
