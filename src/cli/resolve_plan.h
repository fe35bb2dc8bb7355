// From parsed flags to a resolved plan: the steps that every command shares which stands where `lockstep run` would
// stand. Main thread.
#pragma once

#include "base/status.h"
#include "launch/plan.h"
#include "place/machine.h"

namespace lockstep::cli {

// Fills placement, host, cpus and gpu_pci from plan->env and plan->options.
Status ResolvePlacement(launch::LaunchPlan* plan, place::Machine* machine);

// From --token-file or LOCKSTEP_TOKEN.
Status ResolveToken(launch::LaunchPlan* plan);

}  // namespace lockstep::cli
