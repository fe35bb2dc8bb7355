#include "watch/log_progress.h"

#include <charconv>

namespace lockstep::watch {
namespace {

constexpr size_t kLongestLine = 64u << 10;
constexpr size_t kMostRanks = 4096;  // a log that counts something else before every line must not fill memory

// before, number, between, rank, after: "[1,3]<stdout>:" has both numbers.
struct Prefix {
  std::string_view before;
  std::string_view between;  // empty: one number, the rank
  std::string_view after;
};

constexpr Prefix kPrefixes[] = {
    {"", ":", "| "},            // lockstep: node and rank
    {"[1,", "", "]<stdout>:"},  // mpirun --tag-output
    {"[1,", "", "]<stderr>:"},  //
    {"[rank", "", "]:"},        // torchrun, its log lines
    {"[default", "", "]:"},     // torchrun --tee
    {"[trainer", "", "]:"},     // torchrun --role trainer
    {"", "", ": "},             // srun -l
};

std::optional<int> Number(std::string_view* text) {
  int value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

bool Cut(std::string_view* text, std::string_view word) {
  if (!text->starts_with(word)) return false;
  text->remove_prefix(word.size());
  return true;
}

}  // namespace

std::optional<int> CutRankPrefix(std::string_view* line) {
  std::string_view start = *line;
  // srun -l pads the number to the width of the largest.
  while (!start.empty() && start.front() == ' ') start.remove_prefix(1);
  for (const Prefix& prefix : kPrefixes) {
    std::string_view rest = start;
    if (!Cut(&rest, prefix.before)) continue;
    std::optional<int> rank = Number(&rest);
    if (!rank) continue;
    if (!prefix.between.empty()) {
      if (!Cut(&rest, prefix.between) || !(rank = Number(&rest))) continue;
    }
    if (!Cut(&rest, prefix.after)) continue;
    *line = rest;
    return rank;
  }
  return std::nullopt;
}

void LogProgress::Line(std::string_view line, const std::function<void(const LogSign&)>& each) {
  int rank = rank_.value_or(0);
  if (!rank_) rank = CutRankPrefix(&line).value_or(0);
  if (trackers_.size() >= kMostRanks && trackers_.count(rank) == 0) return;
  record::ProgressTracker& tracker = trackers_[rank];
  const bool progress = tracker.Feed(line, Now());
  // A loss without a step (Trainer's dictionaries) belongs to the step last seen.
  std::optional<double> loss = progress ? record::ParseLoss(line) : std::nullopt;
  if (!progress) return;
  any_ = true;
  each({.rank = rank, .state = tracker.state(), .loss = loss});
}

void LogProgress::Read(const std::function<void(const LogSign&)>& each) {
  while (tail_.Read(&partial_)) {
    size_t begin = 0;
    for (size_t end; (end = partial_.find_first_of("\n\r", begin)) != std::string::npos; begin = end + 1) {
      Line(std::string_view(partial_).substr(begin, end - begin), each);
    }
    partial_.erase(0, begin);
    if (partial_.size() > kLongestLine) partial_.clear();
  }
}

}  // namespace lockstep::watch
