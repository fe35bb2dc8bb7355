#include "launch/report.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <sstream>

#include "base/clock.h"
#include "base/process.h"
#include "base/units.h"

namespace lockstep::launch {
namespace {

constexpr size_t kShownLines = 20;

std::string LastLines(const std::string& text, size_t count) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::string out;
  for (size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i) out += "    " + lines[i] + "\n";
  return out;
}

// What a way of dying usually means. Words only where they are nearly always true.
std::string Advice(const RankExit& exit) {
  if (exit.signal == SIGKILL && !exit.evidence.empty()) return "the machine ran out of memory: use less, or raise the limit";
  switch (exit.signal) {
    case SIGKILL: return "somebody killed it: the kernel for lack of memory (no evidence was readable), the scheduler or a person";
    case SIGSEGV: return "a crash in native code: look at the core dump, or run with PYTHONFAULTHANDLER=1 for the stack";
    case SIGBUS: return "usually /dev/shm or a disk is full: enlarge shared memory (docker --shm-size, an emptyDir of medium Memory)";
    case SIGILL: return "the program was built for a newer CPU";
    case SIGABRT: return "the program aborted itself: its last lines say why";
    default: break;
  }
  if (exit.signal == 0 && exit.code == 127) return "a command was not found: check PATH and the environment on that node";
  if (exit.signal == 0 && exit.code == 126) return "a command could not be executed: check its permissions";
  return "its last lines say why; the whole log is in the file named above";
}

}  // namespace

const char* Name(End end) {
  switch (end) {
    case End::kSucceeded: return "succeeded";
    case End::kFailed: return "failed";
    case End::kNodeLost: return "node_lost";
    case End::kStopped: return "stopped";
    case End::kSaved: return "saved";
    case End::kRendezvous: return "rendezvous_failed";
    case End::kEnvironment: return "not_started";
  }
  return "unknown";
}

Json ReportJson(const Outcome& outcome, const ReportContext& context) {
  Json report = {{"state", Name(outcome.end)},
                 {"exit_code", outcome.exit_code},
                 {"reason", outcome.reason},
                 {"hint", outcome.hint},
                 {"world_size", context.world},
                 {"nnodes", context.nnodes},
                 {"attempts", outcome.attempts},
                 {"restarts", outcome.restarts},
                 {"started", context.started},
                 {"ended", context.started + context.duration},
                 {"duration", context.duration},
                 {"first_failure", nullptr},
                 {"failures", Json::array()}};
  for (const RankExit& exit : outcome.failures) {
    Json entry = exit.ToJson();
    entry["description"] = exit.Describe();
    entry["signal_name"] = exit.signal != 0 ? Json(SignalName(exit.signal)) : Json();
    report["failures"].push_back(entry);
  }
  if (!report["failures"].empty() && outcome.end == End::kFailed) {
    report["first_failure"] = report["failures"][0];
    if (outcome.hint.empty()) report["hint"] = Advice(outcome.failures[0]);
  }
  return report;
}

std::string ReportText(const Outcome& outcome, const ReportContext& context) {
  std::string text = fmt::format("{} after {} (exit code {}): {}", Name(outcome.end),
                                 FormatDuration(Millis(static_cast<int64_t>(context.duration * 1000))), outcome.exit_code,
                                 outcome.reason);
  if (outcome.end == End::kFailed && !outcome.failures.empty()) {
    const RankExit& first = outcome.failures[0];
    text += fmt::format("\n  rank {} (local rank {} on node {}, host {}, pid {}): {} after {:.1f} s", first.rank,
                        first.local_rank, first.node, first.host, first.pid, first.Describe(), first.uptime);
    if (!first.evidence.empty()) text += "\n  evidence: " + first.evidence;
    if (!first.error_message.empty()) text += "\n  error: " + first.error_message;
    if (!first.tail.empty()) {
      std::string lines = LastLines(first.tail, kShownLines);
      lines.pop_back();
      text += "\n  last lines:\n" + lines;
    }
    if (!first.log.empty()) text += fmt::format("\n  log: {} on {}", first.log, first.host);
    if (outcome.failures.size() > 1) {
      std::string others;
      for (size_t i = 1; i < outcome.failures.size() && i <= 8; ++i) {
        others += fmt::format("{}rank {} {}", i > 1 ? ", " : "", outcome.failures[i].rank, outcome.failures[i].Describe());
      }
      text += "\n  also failed, later: " + others;
    }
    text += "\n  do: " + (outcome.hint.empty() ? Advice(first) : outcome.hint);
  } else if (!outcome.hint.empty()) {
    text += "\n  do: " + outcome.hint;
  }
  return text;
}

}  // namespace lockstep::launch
