// How the small commands read their arguments: one way to parse, one way to complain. Commands with torchrun's flags
// have their own parser (flag_engine.h). Main thread.
#pragma once

#include <optional>
#include <string>

#include "base/arguments.h"
#include "base/status.h"

namespace lockstep::cli {

// Prints "lockstep <command>: message" and the hint to stderr; returns the exit code of the status.
int Complain(const std::string& command, const Status& status);

// Parses; nothing when the command should go on, else the exit code to leave with (0 after --help, 2 after a mistake).
std::optional<int> ParseCommand(Arguments& arguments, int argc, char** argv);

}  // namespace lockstep::cli
