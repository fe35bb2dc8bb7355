// What `lockstep explain` and `lockstep env` share: flags, environment (this one or a file's) and machine to a
// placement. Called once from a command's main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/plan.h"
#include "place/placement.h"

namespace lockstep::cli {

struct Question {
  place::Placement placement;         // error set also when the flags or the file are wrong
  std::vector<std::string> warnings;  // of the flags
  bool json = false;
  // For what a run would settle beside the placement; not with --env-file, which tells of another machine.
  std::optional<launch::LaunchPlan> plan;
  std::optional<std::string> print;  // --help and the like: print this and exit 0
};

Question Ask(int argc, char** argv);

}  // namespace lockstep::cli
