#include "launch/stall.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace lockstep::launch {
namespace {

constexpr size_t kIntervals = 512;
constexpr Millis kAutoFloor{10 * 60 * 1000};
constexpr int kLimitFactor = 3;  // times the limit: before the first progress, while it prints, while it evaluates

}  // namespace

Millis StallJudge::PulseInterval(const StallLimit& limit) {
  switch (limit.mode) {
    case StallLimit::Mode::kOff:
      return Millis(0);
    case StallLimit::Mode::kWarn:
      return Millis(10000);
    case StallLimit::Mode::kStop:
      break;
  }
  return std::clamp(limit.after / 10, Millis(250), Millis(10000));
}

void StallJudge::Begin(TimePoint now) {
  begin_ = now;
  last_progress_.reset();
  last_output_ = last_write_ = now;
  evaluating_ = false;
  steps_.clear();
}

void StallJudge::Feed(const std::vector<RankPulse>& ranks, TimePoint now) {
  bool evaluating = false;
  for (const RankPulse& rank : ranks) {
    if (rank.step) steps_[rank.rank] = *rank.step;
    if (rank.progress >= Millis(0)) {
      const TimePoint at = std::max(now - rank.progress, begin_);
      if (!last_progress_) {
        last_progress_ = at;
      } else if (at > *last_progress_) {
        const double seconds = std::chrono::duration<double>(at - *last_progress_).count();
        // Many ranks that print the same step are one event, not many.
        if (seconds > 0.05) {
          intervals_.push_back(seconds);
          if (intervals_.size() > kIntervals) intervals_.pop_front();
        }
        last_progress_ = at;
      }
    }
    const auto own = [&](TimePoint at) { return at < asked_from_ || at > asked_until_; };
    const TimePoint printed = now - rank.output;
    if (rank.output >= Millis(0) && own(printed)) last_output_ = std::max(last_output_, printed);
    if (rank.writing && own(now)) last_write_ = now;
    evaluating = evaluating || rank.evaluating;
  }
  evaluating_ = evaluating;
}

void StallJudge::Asked(TimePoint from, TimePoint until) {
  asked_from_ = from;
  asked_until_ = until;
}

std::optional<double> StallJudge::usual() const {
  if (intervals_.empty()) return std::nullopt;
  std::vector<double> sorted(intervals_.begin(), intervals_.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted[std::min(sorted.size() - 1, sorted.size() * 99 / 100)];
}

Millis StallJudge::Base() const {
  if (limit_.mode == StallLimit::Mode::kStop) return limit_.after;
  return std::max(kAutoFloor, Millis(static_cast<int64_t>(usual().value_or(0) * 3000)));
}

StallJudge::Verdict StallJudge::Check(TimePoint now) const {
  Verdict verdict;
  if (limit_.mode == StallLimit::Mode::kOff) return verdict;
  const Millis base = Base();
  TimePoint since = std::max(last_progress_.value_or(begin_), last_write_);
  verdict.limit = base;
  if (!last_progress_) {
    // What a program prints before its first step need not be progress to be life.
    since = std::max(since, last_output_);
    verdict.limit = kLimitFactor * base;
  } else if (evaluating_ || now - last_output_ < base) {
    verdict.limit = kLimitFactor * base;
  }
  verdict.quiet = std::chrono::duration_cast<Millis>(now - since);
  verdict.stalled = verdict.quiet >= verdict.limit;
  verdict.why =
      fmt::format("no {} for {}", last_progress_ ? "progress" : "sign of life",
                  FormatDuration(verdict.quiet > Millis(10000) ? verdict.quiet / 1000 * 1000 : verdict.quiet));
  return verdict;
}

}  // namespace lockstep::launch
