// Runs in Prometheus' text format 0.0.4, for scraping: GPUs under the names of DCGM's exporter, everything else as
// lockstep_*. What is not known is absent. Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "watch/view.h"

namespace lockstep::watch {

std::string PrometheusText(const std::vector<const RunView*>& runs, double now);

}  // namespace lockstep::watch
