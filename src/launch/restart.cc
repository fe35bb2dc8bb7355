#include "launch/restart.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kLongestPause{30000};

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

RestartPolicy::Verdict RestartPolicy::Judge(const std::string& failure, bool progressed) {
  Verdict verdict;
  const bool repeated = !progressed && !last_failure_.empty() && failure == last_failure_;
  last_failure_ = progressed ? "" : failure;
  if (used_ >= budget_) {
    verdict.why =
        budget_ == 0 ? "no restarts were asked for (--max-restarts)" : fmt::format("all {} restarts are used", budget_);
    return verdict;
  }
  if (repeated) {
    verdict.why = "the same failure twice before any progress: another restart would only repeat it";
    return verdict;
  }
  verdict.pause = std::min(kLongestPause, backoff_ * (1 << std::min(used_, 10)));
  ++used_;
  verdict.restart = true;
  verdict.why = fmt::format("restart {} of {}", used_, budget_);
  return verdict;
}

}  // namespace lockstep::launch
