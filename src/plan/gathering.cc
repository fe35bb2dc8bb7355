#include "plan/gathering.h"

#include <algorithm>
#include <limits>

namespace lockstep::plan {

std::vector<Gathered> GatheredInPass(const std::vector<int64_t>& sizes, const GatherLimits& limits) {
  std::vector<size_t> uses;
  for (size_t u = 0; u < sizes.size(); ++u) uses.push_back(u);
  for (size_t u = sizes.size(); u-- > 0;) uses.push_back(u);
  std::vector<bool> started(sizes.size(), false);
  int64_t live = 0;
  const auto start = [&](size_t unit) {
    if (started[unit] || sizes[unit] == 0) return;
    started[unit] = true;
    live += sizes[unit];
  };
  std::vector<Gathered> result;
  for (size_t at = 0; at < uses.size(); ++at) {
    const size_t unit = uses[at];
    start(unit);
    int64_t ahead = 0;
    for (size_t next = at + 1; next < uses.size() && ahead < limits.prefetch; ++next) {
      const size_t other = uses[next];
      if (!started[other] && live + sizes[other] > limits.live) break;
      start(other);
      ahead += sizes[other];
    }
    result.push_back({live, static_cast<int>(std::count(started.begin(), started.end(), true))});
    int64_t distance = 0;
    size_t next = at + 1;
    for (; next < uses.size() && uses[next] != unit; ++next) distance += sizes[uses[next]];
    if (next == uses.size()) distance = std::numeric_limits<int64_t>::max();
    if (distance <= limits.reuse_distance && live <= limits.live) continue;
    if (started[unit]) live -= sizes[unit];
    started[unit] = false;
  }
  return result;
}

}  // namespace lockstep::plan
