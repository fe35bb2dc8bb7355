#include "launch/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kLongestPause{30000};
constexpr double kSure = 0.8;
constexpr int kFreeRestarts = 100;  // a scheduler that preempts for ever is not waited for

bool IsPreemption(const std::string& signature) { return signature.find("preempt") != std::string::npos; }

// Ended by somebody else, for reasons of his own: the step says nothing. A kill for lack of memory has a signature of
// its own.
bool FromOutside(const std::string& failure, const diagnose::Diagnosis* found) {
  if (found == nullptr) {
    return failure.find(": SIGKILL") != std::string::npos || failure.find(": SIGTERM") != std::string::npos;
  }
  static const std::set<std::string> kSignals = {"exit-sigkill", "exit-sigterm", "exit-sigint", "exit-sighup",
                                                 "node-lost"};
  return IsPreemption(found->signature) || kSignals.count(found->signature) != 0;
}

std::string LastLine(const std::string& text) {
  size_t end = text.find_last_not_of("\r\n ");
  if (end == std::string::npos) return "";
  const size_t start = text.find_last_of("\r\n", end);
  return text.substr(start == std::string::npos ? 0 : start + 1,
                     end - (start == std::string::npos ? 0 : start + 1) + 1);
}

// Hexadecimal addresses and digits become '#', so that pids, ports and times do not make failures differ.
std::string Normalise(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '0' && i + 1 < text.size() && text[i + 1] == 'x') {
      i += 2;
      while (i < text.size() && isxdigit(static_cast<unsigned char>(text[i]))) ++i;
      out += '#';
    } else if (isdigit(static_cast<unsigned char>(text[i]))) {
      while (i < text.size() && (isdigit(static_cast<unsigned char>(text[i])) || text[i] == '.')) ++i;
      out += '#';
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace

std::string FailureSignature(const RankExit& exit) {
  const std::string words = exit.error_message.empty() ? LastLine(exit.tail) : LastLine(exit.error_message);
  return fmt::format("rank {}: {}: {}", exit.rank, exit.Describe(), Normalise(words));
}

RestartPolicy::Verdict RestartPolicy::Judge(const std::string& failure, bool progressed,
                                            const diagnose::Diagnosis* diagnosis, std::optional<int64_t> step) {
  Verdict verdict;
  const bool repeated = !progressed && !last_failure_.empty() && failure == last_failure_;
  last_failure_ = progressed ? "" : failure;
  const bool found = diagnosis != nullptr && diagnosis->verdict == diagnose::Verdict::kFailure;
  const bool known = found && diagnosis->restart != diagnose::Restart::kYes && diagnosis->confidence >= kSure;
  const bool sure = known && diagnosis->restart == diagnose::Restart::kNo;
  const std::string cause = found ? fmt::format("{} {}", diagnosis->signature, Normalise(diagnosis->cause)) : failure;
  // Who came further than last time has been helped by the restart: bad data here and there, not a wall. What may be
  // something else than the program has to come at the very same step.
  if (!step && found) step = diagnosis->last_step;
  const bool same = !last_cause_.empty() && cause == last_cause_;
  const bool further = step && last_step_ && *step > *last_step_;
  const bool same_cause = same && sure && !further;
  const bool same_step =
      same && step && last_step_ && *step == *last_step_ && !FromOutside(failure, found ? diagnosis : nullptr);
  last_cause_ = cause;
  last_step_ = step;
  const bool preempted = found && IsPreemption(diagnosis->signature);
  if (used_ >= budget_ && !(preempted && budget_ > 0 && free_ < kFreeRestarts)) {
    verdict.why = budget_ == 0   ? "no restarts were asked for (--max-restarts)"
                  : budget_ == 1 ? "the one restart is used"
                                 : fmt::format("all {} restarts are used", budget_);
    return verdict;
  }
  if (sure && !progressed) {
    verdict.why = "an error of the program itself, before any progress: a restart would only repeat it";
    return verdict;
  }
  if (same_cause) {
    verdict.why = "the same error of the program a second time: a restart would only repeat it";
    return verdict;
  }
  if (same_step) {
    verdict.why =
        fmt::format("the same failure a second time, again at step {}: another restart would only repeat it", *step);
    return verdict;
  }
  if (repeated) {
    verdict.why = "the same failure twice before any progress: another restart would only repeat it";
    return verdict;
  }
  verdict.pause = std::min(kLongestPause, backoff_ * (1 << std::min(used_, 10)));
  verdict.restart = true;
  if (preempted && free_ < kFreeRestarts) {
    ++free_;
    verdict.why = "restart that uses no budget (preempted)";
  } else {
    ++used_;
    verdict.why = fmt::format("restart {} of {}", used_, budget_);
  }
  if (found && diagnosis->exclude_node && !diagnosis->node.empty()) {
    verdict.why += fmt::format(" (node {} should be taken out of the job)", diagnosis->node);
  }
  return verdict;
}

}  // namespace lockstep::launch
