// The part of a preflight in which all nodes take part: they come together, tell their facts, try the network between
// them, and node 0 draws the conclusions for all. Private to preflight.cc.
#pragma once

#include "preflight/preflight.h"

namespace lockstep::preflight {

// All members of the job must call it. The report of this node alone when they do not come together.
Report Meet(const launch::LaunchPlan& plan, const Options& options, const Scene& scene, Facts mine,
            const launch::GatheringEvents& events);

// Whom each of `count` nodes tries: everybody, or, of many, a sample in which every pair of nodes is near in few steps.
std::vector<int> Contacts(int node, int count, bool full);

}  // namespace lockstep::preflight
