// The part of a preflight in which all nodes take part: they hold a rendezvous, send their facts, try the network
// between them, and node 0 draws the conclusions for all. Private to preflight.cc.
#pragma once

#include "preflight/preflight.h"

namespace lockstep::preflight {

// Collective over the nodes of the job. The report of this node alone when the rendezvous fails.
PreflightReport CheckAllNodes(const launch::LaunchPlan& plan, const Options& options, const CheckInput& input,
                              NodeFacts mine, const launch::LauncherGroupEvents& events);

// Which others each of `count` nodes tries: all, or, of many, a sample in which every pair of nodes is near in few
// steps.
std::vector<int> Contacts(int node, int count, bool full);

}  // namespace lockstep::preflight
