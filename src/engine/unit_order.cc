#include "engine/unit_order.h"

#include <utility>

namespace lockstep::engine {

UnitOrder::UnitOrder(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  for (size_t u = 0; u < sizes_.size(); ++u) expected_.push_back({u, false});
  for (size_t u = sizes_.size(); u-- > 0;) expected_.push_back({u, true});
}

void UnitOrder::Begin() {
  seen_.clear();
  follows_ = true;
}

bool UnitOrder::Use(const UnitUse& use) {
  follows_ = follows_ && seen_.size() < expected_.size() && expected_[seen_.size()] == use;
  seen_.push_back(use);
  return follows_;
}

std::optional<UnitUse> UnitOrder::Expected(size_t ahead) const {
  const size_t at = seen_.size() + ahead;
  if (!follows_ || at >= expected_.size()) return std::nullopt;
  return expected_[at];
}

std::vector<UnitUse> UnitOrder::Rest() const {
  if (!follows_) return {};
  return {expected_.begin() + static_cast<std::ptrdiff_t>(seen_.size()), expected_.end()};
}

int64_t UnitOrder::ReuseDistance(size_t unit) const {
  int64_t distance = 0;
  for (size_t ahead = 0;; ++ahead) {
    const std::optional<UnitUse> use = Expected(ahead);
    if (!use) return kNever;
    if (use->unit == unit) return distance;
    distance += sizes_[use->unit];
  }
}

void UnitOrder::End() {
  if (!follows_ || seen_.size() != expected_.size()) expected_ = seen_;
}

}  // namespace lockstep::engine
