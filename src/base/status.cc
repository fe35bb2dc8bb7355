#include "base/status.h"

#include <cstring>

namespace lockstep {

int ExitCode(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return 0;
    case Code::kUsage:
      return 2;
    case Code::kEnvironment:
      return 3;
    case Code::kRendezvous:
      return 4;
    case Code::kRankFailed:
      return 5;
    case Code::kNodeLost:
      return 6;
    case Code::kStalled:
      return 7;
    case Code::kTimeout:
      return 3;
    case Code::kInterrupted:
      return 130;
    case Code::kInternal:
      return 3;
  }
  return 3;
}

std::string ErrnoText(int error) {
  const char* name = strerrorname_np(error);
  return std::string(name ? name : "errno " + std::to_string(error)) + ": " + strerror(error);
}

}  // namespace lockstep
