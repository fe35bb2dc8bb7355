// Where this program's file is, and where lockstep-train is.
#pragma once

#include <string>

#include "base/status.h"

namespace lockstep {

inline constexpr char kEngineName[] = "lockstep-train";

// Every train program (cli/train/program.h) answers this flag with one line of JSON: its version and recipes below this
// key. `lockstep train --program` knows it by that.
inline constexpr char kIdentifyFlag[] = "--identify";
inline constexpr char kTrainProgramKey[] = "lockstep_train_program";

// The file of the running program; `otherwise` where /proc does not say.
std::string OwnExecutable(const std::string& otherwise);

// lockstep-train: beside this program, where LOCKSTEP_TRAIN says, or in PATH. Not found: where it was looked for.
Result<std::string> FindEngine();

}  // namespace lockstep
