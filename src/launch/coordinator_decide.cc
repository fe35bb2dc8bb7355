// The coordinator's part of the decision about an attempt whose ranks are gone: the facts, and what follows from
// decision.h. Whether it is tried again is coordinator_diagnose.cc's question.
#include <fmt/format.h>

#include "launch/coordinator.h"
#include "launch/decision.h"

namespace lockstep::launch {

void Coordinator::Decide() {
  OnNetworkKnown(transports_.Rest());
  Decision decision = DecideAttempt({exits_, world_, options_.engine, progressed_, stop_signal_, stop_why_, lost_,
                                     unreached_, stall_.has_value(), start_failure_});
  RunOutcome& outcome = decision.outcome;
  if (outcome.end == End::kStalled) {
    LookAgain();
    outcome.reason = fmt::format("{}: {}", stall_->why, stall_->verdict.summary);
    outcome.hint = stall_->verdict.advice;
    outcome.stall = stall_->verdict.ToJson();
    outcome.stall["why"] = stall_->why;
    outcome.stall["folder"] = stall_->folder;
    decision.signature = fmt::format("stalled: {}", stall_->verdict.summary);
  }
  if (decision.next == Decision::Next::kFinish) return Finish(std::move(outcome));
  Examine(std::move(outcome), decision.signature, /*final=*/decision.next == Decision::Next::kExplain);
}

}  // namespace lockstep::launch
