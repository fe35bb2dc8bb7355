#include "launch/report.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <sstream>

#include "base/clock.h"
#include "base/process.h"
#include "base/units.h"
#include "diagnose/transport.h"

namespace lockstep::launch {
namespace {

constexpr size_t kShownLines = 20;
constexpr int kShellNotFound = 127, kShellNotExecutable = 126;  // a shell's words

std::string LastLines(const std::string& text, size_t count) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::string out;
  for (size_t i = lines.size() > count ? lines.size() - count : 0; i < lines.size(); ++i)
    out += "    " + lines[i] + "\n";
  return out;
}

std::string Indented(const std::string& text) {
  std::string out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out += "  " + line + "\n";
  if (!out.empty()) out.pop_back();
  return out;
}

// What a way of dying usually means. Words only where they are nearly always true.
std::string Advice(const RankExit& exit) {
  if (exit.signal == SIGKILL && !exit.evidence.empty())
    return "the machine ran out of memory: use less, or raise the limit";
  switch (exit.signal) {
    case SIGKILL:
      return "somebody killed it: the kernel for lack of memory (no evidence was readable), the scheduler or a person";
    case SIGSEGV:
      return "a crash in native code: look at the core dump, or run with PYTHONFAULTHANDLER=1 for the stack";
    case SIGBUS:
      return "usually /dev/shm or a disk is full: enlarge shared memory (docker --shm-size, an emptyDir of medium "
             "Memory)";
    case SIGILL:
      return "the program was built for a newer CPU";
    case SIGABRT:
      return "the program aborted itself: its last lines say why";
    default:
      break;
  }
  if (exit.signal == 0 && exit.code == kShellNotFound)
    return "a command was not found: check PATH and the environment on that node";
  if (exit.signal == 0 && exit.code == kShellNotExecutable)
    return "a command could not be executed: check its permissions";
  return "its last lines say why; the whole log is in the file named above";
}

}  // namespace

Json FailureJson(const RankExit& exit, int attempt) {
  Json lines = Json::array();
  std::istringstream in(exit.tail);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return {{"attempt", attempt},
          {"node", exit.node},
          {"host", exit.host},
          {"rank", exit.rank},
          {"local_rank", exit.local_rank},
          {"pid", exit.pid},
          {"exit_code", exit.signal == 0 ? Json(exit.code) : Json()},
          {"signal", exit.signal != 0 ? Json(exit.signal) : Json()},
          {"signal_name", exit.signal != 0 ? Json(SignalName(exit.signal)) : Json()},
          {"description", exit.Describe()},
          {"uptime", exit.uptime},
          {"error", exit.error_message.empty() ? Json() : Json(exit.error_message)},
          {"traceback", exit.error_detail.empty() ? Json() : Json(exit.error_detail)},
          {"evidence", exit.evidence.empty() ? Json() : Json(exit.evidence)},
          {"log", exit.log},
          {"last_lines", lines}};
}

Json ReportJson(const RunOutcome& outcome, const ReportContext& context) {
  Json report = {{"outcome", RowOf(outcome.end).outcome},
                 {"end", RowOf(outcome.end).name},
                 {"exit_code", outcome.exit_code},
                 {"reason", outcome.reason},
                 {"do", outcome.hint},
                 {"world_size", context.world},
                 {"nnodes", context.nnodes},
                 {"attempts", outcome.attempts},
                 {"restarts", outcome.restarts},
                 {"started", context.started},
                 {"ended", context.started + context.duration},
                 {"first_failure", nullptr},
                 {"other_failures", Json::array()},
                 {"killed_after_grace", outcome.killed},
                 {"stall", outcome.stall},
                 {"diagnosis", outcome.diagnosis},
                 {"warnings", context.warnings}};
  const bool failed = outcome.end == End::kFailed;
  for (size_t i = 0; i < outcome.failures.size(); ++i) {
    const Json entry = FailureJson(outcome.failures[i], outcome.attempt);
    if (i == 0 && failed) {
      report["first_failure"] = entry;
      if (outcome.hint.empty()) report["do"] = Advice(outcome.failures[0]);
    } else {
      report["other_failures"].push_back(entry);
    }
  }
  return report;
}

Json RefusalJson(const Status& status) {
  return {{"outcome", "failed"},
          {"exit_code", ExitCode(status)},
          {"reason", status.message()},
          {"do", status.hint()},
          {"first_failure", nullptr}};
}

std::string ReportText(const RunOutcome& outcome, const ReportContext& context) {
  const char* heading = outcome.end == End::kEnvironment ? "not started" : RowOf(outcome.end).name;
  std::string text = fmt::format("{} after {} (exit code {}): {}", heading,
                                 FormatDuration(Millis(static_cast<int64_t>(context.duration * 1000))),
                                 outcome.exit_code, outcome.reason);
  if (!outcome.killed.empty()) {
    text += fmt::format("\n  did not end within the grace period (--grace) and {} killed: rank{} {}",
                        outcome.killed.size() == 1 ? "was" : "were", outcome.killed.size() == 1 ? "" : "s",
                        diagnose::RankRanges(outcome.killed));
  }
  if (outcome.end == End::kFailed && !outcome.failures.empty()) {
    const RankExit& first = outcome.failures[0];
    text +=
        fmt::format("\n  local rank {}, pid {}, {:.1f} s after its start", first.local_rank, first.pid, first.uptime);
    if (!first.evidence.empty()) text += "\n  evidence: " + first.evidence;
    const bool said = outcome.sure || outcome.reason.find(first.error_message) != std::string::npos;
    if (!first.error_message.empty() && !said) text += "\n  error: " + first.error_message;
    if (!first.tail.empty() && !outcome.sure) {
      std::string lines = LastLines(first.tail, outcome.diagnosis_text.empty() ? kShownLines : kShownLines / 3);
      lines.pop_back();
      text += "\n  last lines:\n" + lines;
    }
    if (!first.log.empty()) text += fmt::format("\n  log: {} on {}", first.log, first.host);
    if (outcome.failures.size() > 1) {
      std::string others;
      for (size_t i = 1; i < outcome.failures.size() && i <= 8; ++i) {
        others +=
            fmt::format("{}rank {} {}", i > 1 ? ", " : "", outcome.failures[i].rank, outcome.failures[i].Describe());
      }
      text += "\n  also failed, later: " + others;
    }
    if (outcome.diagnosis_text.empty()) {
      text += "\n  do: " + (outcome.hint.empty() ? Advice(first) : outcome.hint);
    } else {
      text += "\n" + Indented(outcome.diagnosis_text);
    }
  } else if (!outcome.diagnosis_text.empty()) {
    text += "\n" + Indented(outcome.diagnosis_text);
  } else if (!outcome.hint.empty()) {
    text += "\n  do: " + outcome.hint;
  }
  return text;
}

}  // namespace lockstep::launch
