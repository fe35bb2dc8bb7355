// Whether a failed attempt is tried again: one budget for the whole job, a pause that doubles, no second chance for a
// failure that repeats itself before first progress or at the very same step, and none at all for an error that a
// diagnosis knows to be the program's own. A wrong "no" costs a night, a wrong "yes" a minute: what was done from
// outside (kill, preemption) and what came further than before is always tried again. Pure; owned by the coordinator.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "diagnose/diagnosis.h"
#include "launch/run_outcome.h"

namespace lockstep::launch {

class RestartPolicy {
 public:
  RestartPolicy(int budget, std::chrono::milliseconds backoff) : budget_(budget), backoff_(backoff) {}

  struct Verdict {
    bool restart = false;
    std::chrono::milliseconds pause{0};
    std::string why;  // why not, or "restart 1 of 3"
  };

  // `failure` is what ended the attempt, `progressed` whether any rank had made progress in it, `diagnosis` what was
  // found in the logs (null: nothing), `step` the last one in the metric lines of the rank that failed, if it writes
  // any; otherwise the diagnosis may know it.
  Verdict Judge(const std::string& failure, bool progressed, const diagnose::Diagnosis* diagnosis = nullptr,
                std::optional<int64_t> step = std::nullopt);

  int used() const { return used_; }
  int budget() const { return budget_; }

 private:
  int budget_;
  std::chrono::milliseconds backoff_;
  int used_ = 0;
  int free_ = 0;  // restarts after a preemption
  std::string last_failure_;
  std::string last_cause_;            // in the words of the diagnosis, else as last_failure_
  std::optional<int64_t> last_step_;  // and how far that attempt came
};

// What makes two failures the same: rank, way of ending and last error line, without numbers that change from run to
// run (addresses, pids, times).
std::string FailureSignature(const RankExit& exit);

}  // namespace lockstep::launch
