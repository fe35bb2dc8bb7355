// `lockstep run` from a resolved plan on: joins the rendezvous of the launchers, runs the job, reports. Owns the event
// loop, the log pump and, where this is node 0, the coordinator and the run directory.
#pragma once

#include "launch/plan.h"

namespace lockstep::launch {

// Runs the job under a guardian and returns its exit code. Call from the main thread before any other exists.
int Launch(LaunchPlan plan);

}  // namespace lockstep::launch
