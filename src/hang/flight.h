// What NCCL and PyTorch keep about their collectives: the flight recorder's dump of a rank (a pickle; read, never
// executed) and the answer of NCCL's RAS service on this machine. Any thread; bounded in time.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::hang {

struct FlightSource {
  int rank = -1;
  pid_t pid = 0;
  std::string path;  // of the dump, where the process's own environment does not tell
};

// The last collective a dump knows of: "all_reduce #1017 (started)".
Result<std::string> LastCollective(std::string_view pickle, const std::string& source);

// By rank, for those that have a dump. A process that offers a pipe (TORCH_FR_DUMP_PIPE_FILE, before
// TORCH_NCCL_DEBUG_INFO_PIPE_FILE) is asked for a fresh one first.
std::map<int, std::string> LastCollectives(std::vector<FlightSource> sources);

// The words of the RAS service (NCCL 2.24 and later), at `address` ("127.0.0.1:28028"); empty: none answered.
std::string AskRas(const std::string& address = "");

}  // namespace lockstep::hang
