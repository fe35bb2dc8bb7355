// `lockstep run --profile A..B` for Python programs: a module that Python loads by itself (sitecustomize) and that
// traces these steps with torch's profiler. Written into the run directory before ranks start; called by the agent.
#pragma once

#include <string>

#include "base/status.h"

namespace lockstep::launch {

// Where the module lies in a run directory: goes first into PYTHONPATH.
std::string ProfileHookDir(const std::string& run_dir);

Status WriteProfileHook(const std::string& run_dir);

}  // namespace lockstep::launch
