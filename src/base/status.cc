#include "base/status.h"

#include <csignal>
#include <cstring>

#include "base/exit_codes.h"

namespace lockstep {

int ExitCode(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return kExitOk;
    case Code::kUsage:
      return kExitUsage;
    case Code::kRendezvous:
      return kExitRendezvous;
    case Code::kRankFailed:
      return kExitRankFailed;
    case Code::kNodeLost:
      return kExitNodeLost;
    case Code::kStalled:
      return kExitStalled;
    case Code::kInterrupted:
      return ExitOfSignal(SIGINT);
    case Code::kEnvironment:
    case Code::kTimeout:
    case Code::kInternal:
      break;
  }
  return kExitEnvironment;
}

std::string ErrnoText(int error) {
  const char* name = strerrorname_np(error);
  return std::string(name ? name : "errno " + std::to_string(error)) + ": " + strerror(error);
}

}  // namespace lockstep
