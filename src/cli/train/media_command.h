// What `reconstruct`, `restore`, `encode` and `decode` have in common as commands: flags, signals, the summary. Main
// thread only.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "media/tool.h"

namespace lockstep::cli {

// Parses, runs `work`, which fills the summary, prints it or the error, and returns the exit code. `who`: of ranks, the
// first one prints.
int RunMediaCommand(int argc, char** argv, const std::string& about, const std::string& examples,
                    const std::function<Status(const media::MediaOptions&, nlohmann::json*)>& work,
                    const comm::Bootstrap& who = {});

}  // namespace lockstep::cli
