// Where this program's file is, and where its companion lockstep-train is.
#pragma once

#include <string>

#include "base/status.h"

namespace lockstep {

inline constexpr char kEngineName[] = "lockstep-train";

// The file of the running program; `otherwise` where /proc does not say.
std::string OwnExecutable(const std::string& otherwise);

// lockstep-train: beside this program, where LOCKSTEP_TRAIN says, or in PATH. Not found: where it was looked for.
Result<std::string> FindEngine();

}  // namespace lockstep
