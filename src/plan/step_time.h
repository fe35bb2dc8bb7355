// Expected seconds of one training step and where they go, from the work of a pass (pass.h) and the speeds of a machine
// (machine.h). Pure, any thread.
#pragma once

#include "plan/machine.h"
#include "plan/setting.h"
#include "plan/workload.h"

namespace lockstep::plan {

struct StepTime {
  double forward = 0, backward = 0;  // of all passes of a step
  double update = 0;                 // norm, optimizer, EMA on the device
  double host_update = 0;            // of an offloaded optimizer, copies included
  double host_exposed = 0;           // of it what no computing hides
  double communication = 0;          // all of it
  double exposed = 0;                // of it what no computing hides
  bool tree = false;                 // gradients go over a tree, not a ring

  double Total() const { return forward + backward + update + host_exposed + exposed; }
};

StepTime StepTimeOf(const Workload& workload, const Setting& setting, const Machine& machine);

}  // namespace lockstep::plan
