// Runs a short command and keeps what it printed: to ask a shell what an activation script does, or an interpreter
// whether it runs. Everything is bounded: time, output, and the processes it leaves (its whole session is killed at the
// end). Main thread only, as Spawn.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/status.h"

namespace lockstep::launch {

struct Captured {
  ExitStatus exit;
  std::string out;
  std::string err;
};

// kTimeout when it did not end in time. Output past 8 MiB per stream is dropped.
Result<Captured> Capture(const std::vector<std::string>& argv, const std::vector<std::string>& env,
                         std::chrono::milliseconds limit);

}  // namespace lockstep::launch
