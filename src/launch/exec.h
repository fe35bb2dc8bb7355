// A launcher that becomes the program it was asked to start: as a rank of another launcher, or with --exec. Main
// thread.
#pragma once

#include "base/status.h"
#include "launch/plan.h"

namespace lockstep::launch {

// Replaces this process by the program with the environment as it is. Returns only when that failed.
Status ExecNested(const LaunchPlan& plan);

// The same with the environment of the rank that the placement names.
Status ExecRank(const LaunchPlan& plan);

}  // namespace lockstep::launch
