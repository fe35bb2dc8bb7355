// The output of a submitted job, for `lockstep logs`.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "cli/job_lookup.h"

namespace lockstep::cli {

// Prints what the job has written; with `follow` until it ends. Through the client where no file holds it.
Status ShowJobLogs(const FoundJob& job, bool follow, std::optional<size_t> lines, const Environment& env);

}  // namespace lockstep::cli
