// A job by what people type: its name, or its id.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "submit/platforms.h"
#include "submit/records.h"

namespace lockstep::cli {

struct FoundJob {
  submit::JobRecord record;
  const submit::Platform* platform = nullptr;
  std::vector<submit::JobRecord> others;  // that the same word names: a name stands for the newest
};

// Jobs submitted from this account; with `platform`, also an id that was submitted elsewhere. `name_space` of
// Kubernetes, empty: any.
Result<FoundJob> FindJob(const std::string& which, const std::string& platform, const std::string& name_space,
                         const Environment& env);

}  // namespace lockstep::cli
