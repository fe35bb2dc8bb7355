// Where the platform started one process for many nodes (a SLURM batch script or an allocation shell), the launcher
// starts itself once on every node through srun and waits. Pure planning here; the caller spawns.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/plan.h"

namespace lockstep::launch {

struct FanOut {
  std::vector<std::string> argv;  // srun ... lockstep run ...
  std::vector<std::string> env;   // without variables that would make srun give each launcher a part of the node
};

// `command` is this executable and the command to start on every node ({"/bin/lockstep", "run"}); the arguments of this
// one follow. The plan's action must be kFanOut.
Result<FanOut> PlanFanOut(const LaunchPlan& plan, const std::vector<std::string>& command);

// srun does not pass stop signals on: SIGTERM makes it kill the step, the first SIGINT only makes it talk. So they
// travel as bytes on the standard input of the launcher of node 0, which is told so by this variable ("stdin"). When
// the input ends, the command that fanned out is gone.
inline constexpr char kControlVariable[] = "LOCKSTEP_CONTROL";

// How many ranks each node starts, told to the launchers of the nodes: "8", or "8,4" where nodes differ.
inline constexpr char kCountsVariable[] = "LOCKSTEP_NPROC_BY_NODE";

// Runs it: signals are passed on, srun's exit code is ours.
int RunFanOut(const FanOut& plan);

}  // namespace lockstep::launch
