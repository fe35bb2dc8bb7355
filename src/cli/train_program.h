// Which train program `lockstep train` and the commands that the engine answers itself start: lockstep-train, or the
// one that --program names (docs/write-a-recipe.md). Found, loadable, and one of ours of this version, or an error that
// says what to do. Main thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::cli {

// `named`: the value of --program, a path or a name in PATH; empty: lockstep-train. A program that is named is asked
// who it is, which loads LibTorch once (under a second on a warm machine). The path is absolute.
Result<std::string> FindTrainProgram(const std::string& named);

// Takes --program out of a command line whose other words are not known here; empty: there is none.
Result<std::string> TakeProgramFlag(std::vector<std::string>* words);

}  // namespace lockstep::cli
