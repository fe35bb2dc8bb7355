// Where programs are: this one's file, lockstep-train, any other by its name in PATH.
#pragma once

#include <string>

#include "base/status.h"

namespace lockstep {

inline constexpr char kEngineName[] = "lockstep-train";

// Every train program (cli/train/program.h) answers this flag with one line of JSON: its version and recipes below this
// key. `lockstep train --program` knows it by that.
inline constexpr char kIdentifyFlag[] = "--identify";
inline constexpr char kTrainProgramKey[] = "lockstep_train_program";

// A regular file that this process may execute.
bool IsExecutableFile(const std::string& path);
// The full path of an executable found in `path` (a PATH value), or empty. A name with a slash is taken as it is.
std::string FindExecutable(const std::string& name, const std::string& path);

// The file of the running program; `otherwise` where /proc does not say.
std::string OwnExecutable(const std::string& otherwise);

// lockstep-train: beside this program, where LOCKSTEP_TRAIN says, or in PATH. Not found: where it was looked for.
Result<std::string> FindEngine();

}  // namespace lockstep
