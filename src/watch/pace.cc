#include "watch/pace.h"

#include <algorithm>
#include <vector>

namespace lockstep::watch {
namespace {

constexpr size_t kWindow = 32;  // long enough to even out lines that come in bursts, short enough to follow a change
// A single gap that long, in medians, is no step: a clock was set, or the program stood still.
constexpr double kLongGap = 20;
constexpr size_t kFewestGaps = 4;  // of which a median says something

}  // namespace

void Pace::Add(uint64_t step, double t) {
  if (!seen_.empty() && (step < seen_.back().first || t < seen_.back().second)) seen_.clear();
  if (!seen_.empty() && (step == seen_.back().first || t == seen_.back().second)) return;
  seen_.emplace_back(step, t);
  if (seen_.size() > kWindow) seen_.pop_front();
}

std::optional<double> Pace::seconds_per_step() const {
  if (seen_.size() < 2) return std::nullopt;
  double seconds = seen_.back().second - seen_.front().second;
  auto steps = static_cast<double>(seen_.back().first - seen_.front().first);
  struct Gap {
    double seconds, steps;
    double each() const { return seconds / steps; }
  };
  std::vector<Gap> gaps;
  for (size_t i = 1; i < seen_.size(); ++i) {
    gaps.push_back({seen_[i].second - seen_[i - 1].second, static_cast<double>(seen_[i].first - seen_[i - 1].first)});
  }
  if (gaps.size() < kFewestGaps) return seconds / steps;
  std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.each() < b.each(); });
  const double limit = kLongGap * gaps[gaps.size() / 2].each();
  if (gaps.back().each() > limit && gaps[gaps.size() - 2].each() <= limit) {
    seconds -= gaps.back().seconds;
    steps -= gaps.back().steps;
  }
  return seconds / steps;
}

}  // namespace lockstep::watch
