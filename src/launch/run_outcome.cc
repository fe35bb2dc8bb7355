#include "launch/run_outcome.h"

#include <fmt/format.h>

#include <csignal>

#include "base/exit_codes.h"
#include "base/process.h"

namespace lockstep::launch {

std::string RankExit::Describe() const { return DescribeExit(ExitStatus{code, signal, core_dumped}); }

bool RankExit::RefusedByEngine() const { return signal == 0 && (code == kExitUsage || code == kExitEnvironment); }

const EndRow& RowOf(End end) {
  static constexpr EndRow kRows[] = {
      {End::kSucceeded, "succeeded", "succeeded", kExitOk},
      {End::kFailed, "failed", "failed", kExitRankFailed},
      {End::kNodeLost, "node_lost", "failed", kExitNodeLost},
      {End::kStalled, "stalled", "failed", kExitStalled},
      {End::kStopped, "stopped", "stopped", ExitOfSignal(SIGTERM)},
      {End::kSaved, "saved", "stopped", kExitResume},
      {End::kRendezvous, "rendezvous_failed", "failed", kExitRendezvous},
      {End::kEnvironment, "not_started", "failed", kExitEnvironment},
  };
  for (const EndRow& row : kRows) {
    if (row.end == end) return row;
  }
  return kRows[1];
}

RunOutcome RunOutcome::StoppedBy(int signal, std::string why) {
  RunOutcome outcome(End::kStopped, std::move(why));
  outcome.exit_code = ExitOfSignal(signal);
  return outcome;
}

std::string FailureReason(const RankExit& exit, int world) {
  return fmt::format("rank {} on node {} ({}) failed{}: {}", exit.rank, exit.node, exit.host, world > 1 ? " first" : "",
                     exit.Describe());
}

}  // namespace lockstep::launch
