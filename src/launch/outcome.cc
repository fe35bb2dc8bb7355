#include "launch/outcome.h"

#include <fmt/format.h>

#include "base/process.h"

namespace lockstep::launch {

std::string RankExit::Describe() const { return DescribeExit(ExitStatus{code, signal, core_dumped}); }

std::string FailureReason(const RankExit& exit, int world) {
  return fmt::format("rank {} on node {} ({}) failed{}: {}", exit.rank, exit.node, exit.host, world > 1 ? " first" : "",
                     exit.Describe());
}

}  // namespace lockstep::launch
