// `lockstep run --preflight`: a preflight before the job, in a process of its own, so that the launcher starts as clean
// as without it. Main thread, before any other exists.
#pragma once

#include "launch/plan.h"

namespace lockstep::preflight {

// 0: go ahead, everywhere. 3: a check failed, and no node starts; 4: the rendezvous failed. The report is
// printed to stderr; with --json a failure is one document on stdout.
int Gate(const launch::LaunchPlan& plan);

// Arguments of the program that name a configuration file: "--config a.yaml", "--cfg=b.json", "c.toml".
std::vector<std::string> ConfigArguments(const launch::LaunchPlan& plan);

}  // namespace lockstep::preflight
