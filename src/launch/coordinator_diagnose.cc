// The coordinator's last look at a failed attempt: why it failed, in the words of diagnose/, and with that whether it
// is tried again. The logs' ends came with the nodes' last messages; the search runs on a thread of its own and is not
// waited for longer than a few seconds.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <set>

#include "base/exit_codes.h"
#include "base/quiet_thread.h"
#include "launch/coordinator.h"

namespace lockstep::launch {
namespace {

using diagnose::Diagnosis;

constexpr Millis kSearchLimit{3000};  // for a search that usually takes a tenth of a second

std::string Folder(int attempt, int node, int rank) {
  return fmt::format("logs/attempt-{}/node-{}/rank-{}.log", attempt, node, rank);
}

// A signal that we sent ourselves is never a cause, and no news either.
void LeaveOutOurOwn(const std::vector<RankExit>& exits, std::optional<Diagnosis>* diagnosis) {
  if (!*diagnosis) return;
  const auto ended_by_us = [&](int rank) {
    return std::any_of(exits.begin(), exits.end(), [&](const RankExit& exit) {
      return exit.rank == rank && exit.after_stop && (exit.signal == SIGTERM || exit.signal == SIGKILL);
    });
  };
  const auto ours = [&](const std::string& signature, int rank) {
    return signature.starts_with("exit-sig") && ended_by_us(rank);
  };
  if (ours((*diagnosis)->signature, (*diagnosis)->rank)) return diagnosis->reset();
  std::erase_if((*diagnosis)->alternatives,
                [&](const diagnose::Alternative& one) { return ours(one.signature, one.rank); });
  std::erase_if((*diagnosis)->consequences, [&](const diagnose::Consequence& one) {
    return one.signature.starts_with("exit-sig") && !one.ranks.empty() &&
           std::all_of(one.ranks.begin(), one.ranks.end(), ended_by_us);
  });
}

// What the logs say beside what the launcher saw itself.
void AddAlternative(const std::optional<Diagnosis>& found, Diagnosis* seen) {
  if (!found || found->verdict != diagnose::Verdict::kFailure || found->cause.empty()) return;
  seen->alternatives.push_back(
      {found->signature, found->cause, found->remedy, found->confidence, found->rank, found->node});
}

// Who ended first need not be where it began: the headline and the diagnosis must name the same rank.
void NameTheSameRank(const Diagnosis& diagnosis, int world, RunOutcome* outcome) {
  std::vector<RankExit>& failures = outcome->failures;
  if (outcome->end != End::kFailed || diagnosis.verdict != diagnose::Verdict::kFailure || diagnosis.rank < 0) return;
  if (failures.empty() || failures.front().rank == diagnosis.rank) return;
  const auto found =
      std::find_if(failures.begin(), failures.end(), [&](const RankExit& exit) { return exit.rank == diagnosis.rank; });
  if (found == failures.end()) {
    outcome->reason += fmt::format("; it began at rank {}", diagnosis.rank);
    return;
  }
  const std::string before = FailureReason(failures.front(), world);
  std::rotate(failures.begin(), found, found + 1);
  if (outcome->reason == before) outcome->reason = FailureReason(failures.front(), world);
}

// Before a restart nobody reads more.
std::string Short(const Diagnosis& diagnosis) {
  std::string line;  // of the program
  for (const diagnose::EvidenceLine& evidence : diagnosis.evidence) {
    if (line.empty() && evidence.text.starts_with("at ")) line = ", " + evidence.text;
  }
  return fmt::format(
      "cause: {}{}{}", diagnosis.cause,
      diagnosis.rank < 0 ? "" : fmt::format("\n  where: rank {} on {}{}", diagnosis.rank, diagnosis.node, line),
      diagnosis.remedy.empty() ? "" : "\n  do: " + diagnosis.remedy);
}

}  // namespace

// A machine's own name, as long as it names one node.
std::string Coordinator::NodeName(int node) const {
  std::string host;
  int same = 0;
  std::set<int> nodes;
  for (const auto& [index, slot] : slots_) {
    if (slot.node == node) host = slot.participant.host;
  }
  if (host.empty()) {
    for (const RankExit& exit : exits_) {
      if (exit.node == node) host = exit.host;
    }
  }
  for (const auto& [index, slot] : slots_) {
    if (slot.participant.host == host && nodes.insert(slot.node).second) ++same;
  }
  if (host.empty()) return fmt::format("node-{}", node);
  return same > 1 ? fmt::format("node-{} ({})", node, host) : host;
}

// What the launcher saw itself needs no search.
Diagnosis Coordinator::StallDiagnosis() const {
  Diagnosis found;
  const hang::HangVerdict& verdict = stall_->verdict;
  found.verdict = diagnose::Verdict::kFailure;
  found.signature = "stalled";
  found.cause = fmt::format("{}: {}", stall_->why, verdict.summary);
  found.remedy = verdict.advice;
  found.restart = diagnose::Restart::kYes;
  found.confidence = verdict.confidence;
  if (!verdict.odd.empty()) found.rank = verdict.odd.front();
  for (const hang::RankPosition& place : verdict.places) {
    const bool odd = std::find(verdict.odd.begin(), verdict.odd.end(), place.rank) != verdict.odd.end();
    if (place.rank == found.rank) {
      found.node = NodeName(place.node);
      if (place.step) found.last_step = static_cast<int64_t>(*place.step);
    }
    if (odd && found.evidence.size() < 3) {
      diagnose::EvidenceLine line;
      line.file = stall_->folder.empty() ? "" : fmt::format("{}/rank-{}.txt", stall_->folder, place.rank);
      line.line = 1;
      line.text = fmt::format("{}{}", place.words, place.at.empty() ? "" : " at " + place.at);
      line.rank = place.rank;
      line.node = NodeName(place.node);
      found.evidence.push_back(std::move(line));
    }
  }
  return found;
}

// Likewise: that the ranks of the other nodes were stopped follows from it.
Diagnosis Coordinator::LostDiagnosis(const RunOutcome& outcome) const {
  Diagnosis found;
  found.verdict = diagnose::Verdict::kFailure;
  found.signature = "node-lost";
  found.cause = outcome.reason;
  found.remedy = outcome.hint;
  found.restart = diagnose::Restart::kYes;
  found.confidence = 1;
  found.node = lost_host_;
  return found;
}

// The first search makes the tables it searches with; that is done while the ranks are still ending.
void Coordinator::WarmDiagnosis() {
  if (!options_.diagnose || std::exchange(warmed_, true)) return;
  StartQuietThread([search = options_.diagnose] {
    try {
      (void)search({}, {});
    } catch (const std::exception&) {
    }
  }).detach();
}

void Coordinator::Examine(RunOutcome outcome, const std::string& signature, bool final) {
  deciding_ = true;
  if (!options_.diagnose) return Conclude(std::move(outcome), signature, final, std::nullopt);
  if (auto said = EngineDiagnosis(outcome)) return Conclude(std::move(outcome), signature, final, std::move(said));
  auto logs = std::make_shared<std::vector<diagnose::LogText>>();
  auto earlier = std::make_shared<std::vector<diagnose::LogText>>();
  diagnose::DiagnoseOptions options;
  for (const RankExit& exit : exits_) {
    diagnose::KnownExit known;
    known.rank = exit.rank;
    known.node = NodeName(exit.node);
    known.code = exit.code;
    known.signal = exit.signal;
    known.after_stop = exit.after_stop;
    known.time = exit.time;
    known.evidence = exit.evidence;
    options.exits.push_back(std::move(known));
    auto excerpt = excerpts_.find(exit.rank);
    diagnose::LogText log;
    log.name = exit.log.empty() ? Folder(attempt_, exit.node, exit.rank) : exit.log;
    log.rank = exit.rank;
    log.node = NodeName(exit.node);
    if (excerpt != excerpts_.end()) {
      log.text = std::move(excerpt->second.text);
      log.first_line = excerpt->second.first_line;
      if (!excerpt->second.earlier.empty()) {
        earlier->push_back(log);
        earlier->back().text = std::move(excerpt->second.earlier);
        earlier->back().first_line = excerpt->second.earlier_line;
      }
    } else {
      log.text = exit.tail;
    }
    if (!log.text.empty()) logs->push_back(std::move(log));
  }
  excerpts_.clear();
  struct Answer {
    RunOutcome outcome;
    std::string signature;
    bool final = false;
    bool given = false;
  };
  auto answer = std::make_shared<Answer>(Answer{std::move(outcome), signature, final, false});
  const auto give = [this, answer, alive = alive_](std::optional<Diagnosis> found) {
    if (!*alive || std::exchange(answer->given, true)) return;
    Conclude(std::move(answer->outcome), answer->signature, answer->final, std::move(found));
  };
  StartQuietThread([give, logs, earlier, options, search = options_.diagnose, &loop = loop_] {
    std::optional<Diagnosis> found;
    try {
      auto result = search(*logs, options);
      if (result.ok()) found = std::move(*result);
      // The ends of the logs know of the end only: what was said before they were flooded may say why. Not where steps
      // came after it, nor for who was killed: such a traceback was survived.
      const auto mute = [](const Diagnosis& one) { return one.cause.empty() || one.signature.starts_with("exit-"); };
      const bool killed = found && (found->signature == "exit-sigkill" || found->signature == "exit-sigterm");
      if (!earlier->empty() && (!found || (mute(*found) && !found->last_step && !killed))) {
        result = search(*earlier, options);
        if (result.ok() && !mute(*result)) found = std::move(*result);
      }
    } catch (const std::exception&) {  // a diagnosis that fails must not be a failure of its own
    }
    loop.Post([give, found = std::move(found)] { give(found); });
  }).detach();
  loop_.After(kSearchLimit, [give] { give(std::nullopt); });
}

// Our own engine says in its error file what is wrong: nothing to search for.
std::optional<Diagnosis> Coordinator::EngineDiagnosis(const RunOutcome& outcome) const {
  if (!options_.engine || outcome.failures.empty()) return std::nullopt;
  const RankExit& first = outcome.failures.front();
  if (first.error_message.empty() || !first.RefusedByEngine()) return std::nullopt;
  Diagnosis found;
  found.verdict = diagnose::Verdict::kFailure;
  found.signature = first.code == kExitUsage ? "config" : "environment";
  found.cause = first.error_message;
  found.remedy = first.error_hint;
  found.restart = diagnose::Restart::kAfterFix;
  found.confidence = 1;
  found.rank = first.rank;
  found.node = NodeName(first.node);
  found.evidence.push_back({first.log, 0, first.error_message, first.rank, found.node});
  return found;
}

void Coordinator::Conclude(RunOutcome outcome, const std::string& signature, bool final,
                           std::optional<Diagnosis> diagnosis) {
  deciding_ = false;
  if (state_ == State::kFinished) return;
  LeaveOutOurOwn(exits_, &diagnosis);
  const bool stalled = stall_ && outcome.end == End::kStalled;
  const bool lost = outcome.end == End::kNodeLost;
  if (stalled || lost) {
    Diagnosis seen = stalled ? StallDiagnosis() : LostDiagnosis(outcome);
    AddAlternative(diagnosis, &seen);
    diagnosis = std::move(seen);
  }
  if (diagnosis) {
    // What the program itself says about the remedy is nearer to the matter than what is known in general.
    if (!outcome.failures.empty() && !outcome.failures.front().error_hint.empty()) {
      diagnosis->remedy = outcome.failures.front().error_hint;
    }
    NameTheSameRank(*diagnosis, world_, &outcome);
    outcome.diagnosis = diagnose::ToJson(*diagnosis);
    // What the launcher saw itself and the engine's own words stand in the reason already.
    if (diagnosis->verdict == diagnose::Verdict::kFailure && !stalled && !lost && !EngineDiagnosis(outcome)) {
      outcome.diagnosis_text = diagnose::DiagnosisText(*diagnosis, /*brief=*/true, /*colour=*/false);
      outcome.sure = diagnosis->confidence >= 0.8;
      if (outcome.hint.empty()) outcome.hint = diagnosis->remedy;
    }
    events_.record("diagnosis", {{"attempt", attempt_}, {"diagnosis", outcome.diagnosis}});
  }
  if (final) return Finish(std::move(outcome));
  const auto verdict = stop_signal_ != 0
                           ? RestartPolicy::Verdict{}
                           : policy_.Judge(signature, progressed_, diagnosis ? &*diagnosis : nullptr,
                                           outcome.failures.empty() ? std::nullopt : outcome.failures.front().step);
  if (!verdict.restart) {
    if (policy_.budget() > 0 && stop_signal_ == 0) outcome.reason += fmt::format(" ({})", verdict.why);
    return Finish(std::move(outcome));
  }
  events_.record("attempt_ended",
                 {{"attempt", attempt_}, {"exit_code", outcome.exit_code}, {"reason", outcome.reason}});
  events_.record("restart", {{"attempt", attempt_},
                             {"why", outcome.reason},
                             {"left", policy_.budget() - policy_.used()},
                             {"pause", verdict.pause.count() / 1000.0},
                             {"failure", outcome.failures.empty() ? Json() : ToJson(outcome.failures.front())}});
  if (!outcome.diagnosis_text.empty()) events_.say(Short(*diagnosis));
  events_.say(fmt::format("{}; {} in {:.1f} s", outcome.reason, verdict.why, verdict.pause.count() / 1000.0));
  state_ = State::kBackingOff;
  ++attempt_;
  loop_.After(verdict.pause, [this] {
    if (state_ != State::kBackingOff) return;
    state_ = State::kRendezvous;  // a lost node may be replaced
    rendezvous_start_ = Now();
    refusals_.Clear();
    if (static_cast<int>(slots_.size()) < self_.count) {
      events_.say(fmt::format("waiting for a replacement of {}", MissingText()));
    }
    CheckComplete();
  });
}

}  // namespace lockstep::launch
