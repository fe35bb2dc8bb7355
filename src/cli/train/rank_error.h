// How a rank that failed tells it: on the console, and in the file from which its launcher reads the cause. Main
// thread.
#pragma once

#include <string>

#include "base/status.h"

namespace lockstep::cli {

// One rank says it on the console (`say`); all leave the reason for the launcher, and the same code. `refused`: before
// the work began.
int FailRank(const std::string& command, const Status& status, bool say, bool refused);

}  // namespace lockstep::cli
