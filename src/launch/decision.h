// What the nodes' reports add up to when the ranks of an attempt are gone: how the attempt ended, with which exit code,
// which rank failed first, and what is to be done next. Pure; the coordinator collects the facts and acts, the restart
// policy (restart.h) decides about a further attempt.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/run_outcome.h"

namespace lockstep::launch {

struct AttemptFacts {
  std::vector<RankExit> exits;  // in order of arrival
  int world = 1;
  bool engine = false;      // the ranks are lockstep-train, and keep our exit codes
  bool progressed = false;  // a rank had made progress
  int stop_signal = 0;      // of a stop asked for from outside, 0: none
  std::string stop_why;     // "SIGTERM at node 1 (...)"
  std::string lost;         // the first node lost; empty: none
  std::string unreached;    // nodes that could not be told to stop
  bool stalled = false;     // the ranks were stopped because they hung
  Status start_failure;     // a node could not start its ranks
};

struct Decision {
  enum class Next {
    kFinish,   // the job is over
    kExplain,  // over too, after a diagnosis
    kJudge,    // the restart policy decides, after a diagnosis
  };
  RunOutcome outcome;     // of kStalled: without the reason, which the stacks tell
  std::string signature;  // what makes two failures the same, for the restart policy
  Next next = Next::kFinish;
};

Decision DecideAttempt(const AttemptFacts& facts);

}  // namespace lockstep::launch
