// How a run ended, for people and for programs: report.json of the run directory and the lines printed at the end. Pure
// functions.
#pragma once

#include <string>

#include "base/status.h"
#include "launch/run_outcome.h"

namespace lockstep::launch {

struct ReportContext {
  std::string run_name, run_dir;
  int world = 1, nnodes = 1;
  double started = 0, duration = 0;
  std::vector<std::string> warnings;
};

Json ReportJson(const RunOutcome& outcome, const ReportContext& context);

// The document of --json when nothing could be started.
Json RefusalJson(const Status& status);

// The end as a person wants to read it: what happened, the first failing rank with its last words, what to do, where
// the logs are. Several lines, no trailing newline.
std::string ReportText(const RunOutcome& outcome, const ReportContext& context);

}  // namespace lockstep::launch
