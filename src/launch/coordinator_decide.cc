// What the nodes' reports add up to when the ranks of an attempt are gone: how the attempt ended, with which exit code,
// and which rank failed first. Whether it is tried again is coordinator_diagnose.cc's question.
#include <fmt/format.h>
#include <signal.h>

#include "base/exit_codes.h"
#include "launch/coordinator.h"

namespace lockstep::launch {
namespace {

struct Tally {
  std::vector<RankExit> failures;  // first failing rank first
  bool saved = false;              // a rank asks to be resumed, and none failed to save
  bool finished = true;            // every rank was done before anybody told it to stop
  bool real_failure = false;       // something failed that was not merely told to stop
};

// stop_signal: of a stop asked for from outside, 0: none. stalled: the ranks were stopped because they hung.
Tally TallyUp(const std::vector<RankExit>& exits, int stop_signal, bool stalled) {
  Tally tally;
  std::vector<RankExit>& failures = tally.failures;
  bool saved = false;
  bool unsaved = false;  // a rank that was told to stop and could not do so cleanly
  for (const RankExit& exit : exits) {
    tally.finished = tally.finished && exit.success() && !exit.told;
    saved = saved || (exit.code == kExitResume && exit.signal == 0);
    unsaved = unsaved || (exit.signal == 0 && exit.code != 0 && exit.code != kExitResume);
    if (!exit.success() && !exit.after_stop && exit.code != kExitResume) failures.push_back(exit);
  }
  // The first failing rank: the one that failed before anybody was told to stop, in order of arrival; among those,
  // an error file's own time stamp is better evidence, because two ranks may fail within one turn of the loop.
  for (size_t i = 1; i < failures.size(); ++i) {
    if (failures[i].error_time > 0 && failures[0].error_time > failures[i].error_time) {
      std::swap(failures[0], failures[i]);
    }
  }
  for (const RankExit& exit : exits) {
    const bool told = exit.after_stop && (stalled || exit.signal == SIGTERM || exit.signal == SIGKILL ||
                                          (stop_signal != 0 && exit.signal == stop_signal) || exit.code == kExitResume);
    if (!exit.success() && exit.after_stop && !told) failures.push_back(exit);
  }
  // "Resume me" is a promise: one rank that failed to save takes it back.
  const bool broken_promise = saved && unsaved;
  tally.saved = saved && !unsaved;
  tally.real_failure = !failures.empty() && (!failures.front().after_stop || (broken_promise && stop_signal == 0));
  return tally;
}

}  // namespace

void Coordinator::Decide() {
  OnNetworkKnown(transports_.Rest());
  const Tally tally = TallyUp(exits_, stop_signal_, stall_.has_value());
  if (!start_failure_.ok()) {
    Outcome outcome(End::kEnvironment, start_failure_.message(), start_failure_.hint());
    outcome.failures = tally.failures;
    return Finish(std::move(outcome));
  }
  if (stop_signal_ != 0 && !tally.real_failure && lost_.empty()) {
    if (tally.finished && static_cast<int>(exits_.size()) == world_) {
      return Finish(Outcome(End::kSucceeded, fmt::format("all ranks had succeeded before {}", stop_why_)));
    }
    if (tally.saved && unreached_.empty()) {
      return Finish(
          Outcome(End::kSaved, fmt::format("stopped by {} with its state saved: start it again to resume", stop_why_)));
    }
    // Also where every rank ended with 0: a rank that was told to stop cannot say whether it was done.
    return Finish(Outcome::StoppedBy(
        stop_signal_,
        fmt::format("stopped by {}{}", stop_why_, unreached_.empty() ? "" : "; not seen to end: " + unreached_)));
  }
  Outcome outcome;
  std::string signature;
  if (!lost_.empty()) {
    outcome = Outcome(End::kNodeLost, "lost " + lost_,
                      "look at that machine: power, kernel log, network; the log of its launcher has more");
    outcome.failures = tally.failures;
    signature = "lost " + lost_;
  } else if (stall_ && !tally.real_failure) {
    LookAgain();
    outcome =
        Outcome(End::kStalled, fmt::format("{}: {}", stall_->why, stall_->verdict.summary), stall_->verdict.advice);
    outcome.stall = stall_->verdict.ToJson();
    outcome.stall["why"] = stall_->why;
    outcome.stall["folder"] = stall_->folder;
    signature = fmt::format("stalled: {}", stall_->verdict.summary);
  } else if (tally.real_failure) {
    const RankExit& first = tally.failures.front();
    outcome = Outcome(End::kFailed, FailureReason(first, world_), first.error_hint);
    outcome.failures = tally.failures;
    signature = FailureSignature(first);
    if (options_.engine && first.RefusedByEngine()) {
      if (first.refused && !progressed_) outcome.end = End::kEnvironment;
      outcome.exit_code = first.code;
      if (!first.error_message.empty()) outcome.reason = first.error_message;
      return Examine(std::move(outcome), signature, /*final=*/true);
    }
  } else if (tally.saved) {
    return Finish(Outcome(End::kSaved, "stopped by its own request with its state saved: start it again to resume"));
  } else {
    return Finish(
        Outcome(End::kSucceeded, world_ == 1 ? "rank 0 succeeded" : fmt::format("all {} ranks succeeded", world_)));
  }
  Examine(std::move(outcome), signature, /*final=*/false);
}

}  // namespace lockstep::launch
