#include "launch/decision.h"

#include <fmt/format.h>
#include <signal.h>

#include "base/exit_codes.h"
#include "launch/restart.h"

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

using Next = Decision::Next;

// The end of a job that was asked to stop, and in which nothing else happened.
RunOutcome Stopped(const AttemptFacts& facts, const Tally& tally) {
  if (tally.finished && static_cast<int>(facts.exits.size()) == facts.world) {
    return RunOutcome(End::kSucceeded, fmt::format("all ranks had succeeded before {}", facts.stop_why));
  }
  if (tally.saved && facts.unreached.empty()) {
    return RunOutcome(End::kSaved,
                      fmt::format("stopped by {} with its state saved: start it again to resume", facts.stop_why));
  }
  // Also where every rank ended with 0: a rank that was told to stop cannot say whether it was done.
  return RunOutcome::StoppedBy(facts.stop_signal,
                               fmt::format("stopped by {}{}", facts.stop_why,
                                           facts.unreached.empty() ? "" : "; not seen to end: " + facts.unreached));
}

Decision Failed(const AttemptFacts& facts, const Tally& tally) {
  const RankExit& first = tally.failures.front();
  Decision decision{RunOutcome(End::kFailed, FailureReason(first, facts.world), first.error_hint),
                    FailureSignature(first), Next::kJudge};
  decision.outcome.failures = tally.failures;
  if (facts.engine && first.RefusedByEngine()) {
    if (first.refused && !facts.progressed) decision.outcome.end = End::kEnvironment;
    decision.outcome.exit_code = first.code;
    if (!first.error_message.empty()) decision.outcome.reason = first.error_message;
    decision.next = Next::kExplain;
  }
  return decision;
}

}  // namespace

Decision DecideAttempt(const AttemptFacts& facts) {
  const Tally tally = TallyUp(facts.exits, facts.stop_signal, facts.stalled);
  if (!facts.start_failure.ok()) {
    RunOutcome outcome(End::kEnvironment, facts.start_failure.message(), facts.start_failure.hint());
    outcome.failures = tally.failures;
    return {std::move(outcome), "", Next::kFinish};
  }
  if (facts.stop_signal != 0 && !tally.real_failure && facts.lost.empty()) {
    return {Stopped(facts, tally), "", Next::kFinish};
  }
  if (!facts.lost.empty()) {
    RunOutcome outcome(End::kNodeLost, "lost " + facts.lost,
                       "look at that machine: power, kernel log, network; the log of its launcher has more");
    outcome.failures = tally.failures;
    return {std::move(outcome), "lost " + facts.lost, Next::kJudge};
  }
  if (facts.stalled && !tally.real_failure) return {RunOutcome(End::kStalled), "", Next::kJudge};
  if (tally.real_failure) return Failed(facts, tally);
  if (tally.saved) {
    return {RunOutcome(End::kSaved, "stopped by its own request with its state saved: start it again to resume"), "",
            Next::kFinish};
  }
  return {RunOutcome(End::kSucceeded,
                     facts.world == 1 ? "rank 0 succeeded" : fmt::format("all {} ranks succeeded", facts.world)),
          "", Next::kFinish};
}

}  // namespace lockstep::launch
