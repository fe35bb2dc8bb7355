// When a rank's log file is full, and how many full ones are kept: --log-rotate. A plain value.
#pragma once

#include <cstdint>

namespace lockstep::logs {

struct LogRotation {
  uint64_t bytes = 100ull << 20;  // start a new file past this size
  int keep = 5;                   // rotated files kept beside the current one
};

}  // namespace lockstep::logs
