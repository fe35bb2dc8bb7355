// A preflight's report for people (one line if all is well, a table, the failures with what to do, the network as a
// matrix) and as one JSON document. Pure functions.
#pragma once

#include <string>

#include "preflight/preflight.h"

namespace lockstep::preflight {

// "ok: 2 nodes, 38 checks in 0.8 s", "failed: memlock on node 1 (b); 2 warnings".
std::string Headline(const PreflightReport& report);
// Everything, lines ended. `table`: also the checks that are well, and the matrix.
std::string ReportText(const PreflightReport& report, bool table, bool colour);
Json Document(const PreflightReport& report);

}  // namespace lockstep::preflight
