#include "data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::data {
namespace {

// Weights of up to six decimals as whole numbers without a common divisor; empty where they are none, or too large.
std::vector<uint64_t> Exact(const std::vector<Mixture::Part>& parts) {
  constexpr double kLargest = 0x1p52;
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<uint64_t> counts;
    uint64_t divisor = 0;
    for (const Mixture::Part& part : parts) {
      const double scaled = part.weight * scale;
      const double whole = std::round(scaled);
      if (whole < 1 || whole > kLargest || std::abs(scaled - whole) > 1e-9 * whole) break;
      counts.push_back(static_cast<uint64_t>(whole));
      divisor = std::gcd(divisor, counts.back());
    }
    if (counts.size() < parts.size()) continue;
    uint64_t period = 0;
    for (uint64_t& count : counts) period += count /= divisor;
    if (period <= Mixture::kLongestPeriod) return counts;
    return {};  // a larger scale has the same quotients
  }
  return {};
}

// Shares of the longest period: rounded down, and what is missing goes to the largest remainders.
std::vector<uint64_t> Rounded(const std::vector<Mixture::Part>& parts) {
  double sum = 0;
  for (const Mixture::Part& part : parts) sum += part.weight;
  std::vector<uint64_t> counts;
  std::vector<double> remainders;
  uint64_t missing = Mixture::kLongestPeriod;
  for (const Mixture::Part& part : parts) {
    const double wanted = part.weight / sum * static_cast<double>(Mixture::kLongestPeriod);
    counts.push_back(static_cast<uint64_t>(wanted));
    remainders.push_back(wanted - std::floor(wanted));
    missing -= std::min(missing, counts.back());
  }
  std::vector<size_t> by_remainder(parts.size());
  std::iota(by_remainder.begin(), by_remainder.end(), 0);
  std::ranges::sort(by_remainder, {}, [&](size_t i) { return std::pair(-remainders[i], i); });
  for (uint64_t i = 0; i < missing; ++i) ++counts[by_remainder[i % parts.size()]];
  return counts;
}

// Tijdeman's rule, in integers: with n sets, m = 2n - 2 and shares a_i / D, draw k goes to the set whose deadline is
// next among those that are behind by at least 1 / m.
size_t NextPart(const std::vector<uint64_t>& counts, const std::vector<uint64_t>& had, int64_t draw, int64_t period) {
  const int64_t m = std::max<int64_t>(1, 2 * static_cast<int64_t>(counts.size()) - 2);
  size_t chosen = counts.size();
  int64_t chosen_slack = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto count = static_cast<int64_t>(counts[i]);
    const int64_t behind = m * (count * draw - period * static_cast<int64_t>(had[i]));  // in 1 / (m D)
    if (behind < period) continue;
    const int64_t slack = (m - 1) * period - behind;  // divided by the share: draws until it would be too late
    if (chosen == counts.size() || slack * static_cast<int64_t>(counts[chosen]) < chosen_slack * count) {
      chosen = i;
      chosen_slack = slack;
    }
  }
  return chosen == counts.size() ? 0 : chosen;  // one is always behind by that much
}

}  // namespace

Result<Mixture> Mixture::Create(const std::vector<Part>& parts) {
  if (parts.empty() || parts.size() > kMostParts) {
    return Status(Code::kUsage, fmt::format("a mixture of {} data sets; expected 1 to {}", parts.size(), kMostParts));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].size == 0) return Status(Code::kUsage, fmt::format("set {} of the mixture has no samples", i));
    if (std::isfinite(parts[i].weight) && parts[i].weight > 0) continue;
    return Status(Code::kUsage,
                  fmt::format("weight {} of set {} of the mixture; expected more than 0", parts[i].weight, i));
  }
  std::vector<uint64_t> counts = Exact(parts);
  if (counts.empty()) counts = Rounded(parts);
  if (const auto none = std::ranges::find(counts, 0u); none != counts.end()) {
    return Status(
        Code::kUsage,
        fmt::format("weight {} of set {} of the mixture is less than 1/{} of all weights",
                    parts[static_cast<size_t>(none - counts.begin())].weight, none - counts.begin(), kLongestPeriod),
        "raise it, or leave the set out");
  }
  const uint64_t period = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  Mixture mixture;
  for (const Part& part : parts) mixture.sizes_.push_back(part.size);
  mixture.places_.resize(parts.size());
  std::vector<uint64_t> had(parts.size(), 0);
  for (uint64_t draw = 0; draw < period; ++draw) {
    const size_t part = NextPart(counts, had, static_cast<int64_t>(draw) + 1, static_cast<int64_t>(period));
    mixture.order_.push_back(static_cast<uint16_t>(part));
    mixture.ordinals_.push_back(static_cast<uint32_t>(had[part]++));
    mixture.places_[part].push_back(static_cast<uint32_t>(draw));
  }
  return mixture;
}

Mixture::Drawn Mixture::At(uint64_t draw) const {
  const uint64_t at = draw % period();
  const size_t part = order_[at];
  return {part, draw / period() * per_period(part) + ordinals_[at]};
}

uint64_t Mixture::DrawsOf(size_t part, uint64_t draws) const {
  const std::vector<uint32_t>& places = places_[part];
  const auto before = std::ranges::lower_bound(places, draws % period()) - places.begin();
  return draws / period() * places.size() + static_cast<uint64_t>(before);
}

uint64_t Mixture::DrawsOfAll() const {
  uint64_t most = 0;
  for (size_t part = 0; part < parts(); ++part) {
    const uint64_t last = size(part) - 1;
    const uint64_t draw = last / per_period(part) * period() + places_[part][last % per_period(part)];
    most = std::max(most, draw + 1);
  }
  return most;
}

}  // namespace lockstep::data
