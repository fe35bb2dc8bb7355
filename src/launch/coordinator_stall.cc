// The coordinator's watch over a job that does not move: it decides for all nodes that there is a stall, has every node
// look where its ranks stand, names the one that holds the others up, and only then stops the job (where a duration was
// given) or says so (auto). The same inspection answers `lockstep doctor hang`.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "hang/movement.h"
#include "launch/coordinator.h"

namespace lockstep::launch {
namespace {

constexpr Millis kStacksLimit{15000};  // what a node may take to collect its stacks
constexpr Millis kAnswerMargin{5000};  // for the answer to arrive
constexpr Millis kEcho{2000};          // what a rank was asked to write may come a little later

// Ranks whose Python stack could not be read although they run Python.
bool Blind(const std::vector<hang::ProcessStacks>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [](const hang::ProcessStacks& process) {
    const bool python = process.command.find("python") != std::string::npos;
    const bool seen = std::any_of(process.threads.begin(), process.threads.end(),
                                  [](const auto& thread) { return !thread.python.empty(); });
    return python && !seen && !process.gone;
  });
}

}  // namespace

void Coordinator::CheckStall() {
  if (state_ != State::kRunning || inspection_.running || options_.stall.mode == StallLimit::Mode::kOff) return;
  const StallJudge::Verdict verdict = judge_.Check(Now());
  if (!verdict.stalled) {
    if (stall_told_) {
      stall_told_ = false;
      events_.say("the job makes progress again");
      events_.record("stall_over", {{"attempt", attempt_}});
    }
    return;
  }
  if (stall_told_) return;
  stall_told_ = true;
  const bool stop = options_.stall.mode == StallLimit::Mode::kStop;
  events_.say(fmt::format("{}; looking where the ranks are{}", verdict.why, stop ? "" : " (nothing is stopped)"));
  inspection_.for_stall = true;
  BeginInspection(/*pause=*/stop);
}

void Coordinator::Inspect(bool pause, bool keep, std::function<void(const Json&)> reply) {
  if (state_ != State::kRunning) {
    return reply({{"type", "hang"}, {"error", "no attempt is running now"}});
  }
  inspection_.replies.push_back(std::move(reply));
  inspection_.keep = inspection_.keep || keep;
  if (!inspection_.running) BeginInspection(pause);
}

void Coordinator::BeginInspection(bool pause) {
  inspection_.running = true;
  ++inspection_.id;
  inspection_.until = Now() + kStacksLimit + kAnswerMargin;
  judge_.Asked(Now(), inspection_.until);
  inspection_.found.clear();
  inspection_.collectives.clear();
  inspection_.ras.clear();
  inspection_.missing.clear();
  for (auto& [index, slot] : slots_) {
    if (slot.stopped) continue;
    inspection_.missing.insert(index);
    Send(slot, ToJson(message::StacksQuestion{inspection_.id, pause, kStacksLimit}));
  }
  CheckInspection();
}

void Coordinator::OnStacks(int index, const message::Stacks& stacks) {
  if (!inspection_.running || stacks.id != inspection_.id) return;
  inspection_.missing.erase(index);
  const std::string host = slots_.count(index) != 0 ? slots_[index].participant.host : "";
  for (const Json& row : stacks.ranks) {
    hang::ProcessStacks process = hang::StacksFromJson(row);
    process.host = host;
    inspection_.found.push_back(std::move(process));
  }
  for (const auto& [rank, words] : stacks.collectives) inspection_.collectives[rank] = words;
  if (inspection_.ras.empty()) inspection_.ras = stacks.ras;
  if (!stacks.error.empty()) events_.say(fmt::format("warning: {}: its stacks are incomplete: {}", host, stacks.error));
  CheckInspection();
}

void Coordinator::CheckInspection() {
  if (!inspection_.running) return;
  std::erase_if(inspection_.missing, [&](int index) { return slots_.count(index) == 0; });
  if (state_ == State::kRunning && !inspection_.missing.empty() && Now() < inspection_.until) return;
  FinishInspection();
}

void Coordinator::FinishInspection() {
  inspection_.running = false;
  judge_.Asked(inspection_.until - kStacksLimit - kAnswerMargin, Now() + kEcho);
  const auto replies = std::exchange(inspection_.replies, {});
  const bool for_stall = std::exchange(inspection_.for_stall, false);
  const bool keep = std::exchange(inspection_.keep, false) || for_stall;
  if (state_ != State::kRunning) {
    for (const auto& reply : replies) reply({{"type", "hang"}, {"error", "the attempt ended meanwhile"}});
    return;
  }
  std::sort(inspection_.found.begin(), inspection_.found.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  hang::HangFacts facts;
  facts.steps = judge_.steps();
  facts.collective = inspection_.collectives;
  for (const RankExit& exit : exits_) facts.ended[exit.rank] = exit.Describe();
  hang::HangVerdict verdict = hang::JudgeHang(inspection_.found, facts);
  const StallJudge::Verdict quiet = judge_.Check(Now());
  if (for_stall && !judge_.progressed()) {
    verdict.advice += fmt::format("{}no step was seen so far: if it was still starting, give a longer --stall-timeout",
                                  verdict.advice.empty() ? "" : "; ");
  }
  Json hang = verdict.ToJson();
  hang["format"] = 1;
  hang["t"] = UnixSeconds();
  hang["attempt"] = attempt_;
  hang["stalled"] = quiet.stalled;
  hang["quiet_seconds"] = static_cast<double>(quiet.quiet.count()) / 1000.0;
  hang["ras"] = inspection_.ras;
  hang["collectives"] = Json::object();
  for (const auto& [rank, words] : facts.collective) hang["collectives"][std::to_string(rank)] = words;
  Json silent = Json::array();
  for (int index : inspection_.missing) silent.push_back(slots_[index].participant.Who());
  hang["silent_nodes"] = silent;
  hang["usual_seconds"] = judge_.usual() ? Json(*judge_.usual()) : Json();
  const std::string folder = keep && events_.keep ? events_.keep(hang, inspection_.found) : "";
  Json prints = Json::array();
  for (const auto& process : inspection_.found) prints.push_back(hang::ToJson(hang::PrintOf(process)));
  for (const auto& reply : replies) {
    reply({{"type", "hang"}, {"hang", hang}, {"prints", prints}, {"folder", folder}});
  }
  if (!for_stall) return;
  if (!quiet.stalled) return;  // it moved while we looked: the next tick says so
  events_.record("stalled", {{"attempt", attempt_},
                             {"why", quiet.why},
                             {"summary", verdict.summary},
                             {"ranks", verdict.odd},
                             {"folder", folder},
                             {"stopping", options_.stall.mode == StallLimit::Mode::kStop}});
  events_.say(fmt::format("{}: {}{}", quiet.why, verdict.Text(), folder.empty() ? "" : "\n  stacks: " + folder));
  if (options_.stall.mode != StallLimit::Mode::kStop) return;
  stall_ = Stall{quiet.why, verdict, inspection_.found, facts, folder};
  // SIGABRT makes a Python that has its fault handler on (the launcher sets PYTHONFAULTHANDLER) write its stacks into
  // the log: the last resort where they could not be read from outside.
  BeginStop(Blind(inspection_.found) ? SIGABRT : SIGTERM, "the job is stalled");
}

void Coordinator::LookAgain() {
  bool more = false;
  for (hang::ProcessStacks& process : stall_->stacks) {
    const bool seen = std::any_of(process.threads.begin(), process.threads.end(),
                                  [](const auto& thread) { return !thread.python.empty(); });
    if (seen) continue;
    for (const RankExit& exit : exits_) {
      if (exit.rank != process.rank) continue;
      auto threads = hang::ParseFaulthandler(exit.tail);
      if (threads.empty()) continue;
      if (process.threads.empty()) process.threads.emplace_back();
      process.threads.front().python = threads.front().python;
      process.threads.insert(process.threads.end(), threads.begin() + 1, threads.end());
      process.notes.emplace_back("Python frames: written by its fault handler when it was aborted");
      more = true;
    }
  }
  if (!more) return;
  stall_->verdict = hang::JudgeHang(stall_->stacks, stall_->facts);
  events_.say(fmt::format("Python's own stacks say: {}", stall_->verdict.summary));
}

}  // namespace lockstep::launch
