#include "watch/pace.h"

namespace lockstep::watch {
namespace {

constexpr size_t kWindow = 32;  // long enough to even out lines that come in bursts, short enough to follow a change

}  // namespace

void Pace::Add(uint64_t step, double t) {
  if (!seen_.empty() && (step < seen_.back().first || t < seen_.back().second)) seen_.clear();
  if (!seen_.empty() && (step == seen_.back().first || t == seen_.back().second)) return;
  seen_.emplace_back(step, t);
  if (seen_.size() > kWindow) seen_.pop_front();
}

std::optional<double> Pace::seconds_per_step() const {
  if (seen_.size() < 2) return std::nullopt;
  return (seen_.back().second - seen_.front().second) / static_cast<double>(seen_.back().first - seen_.front().first);
}

}  // namespace lockstep::watch
