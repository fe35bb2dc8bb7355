// The rules that look at one rank, GPU, link or at the loss, and the list of all rules.
#include "watch/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "watch/finding_rules.h"

namespace lockstep::watch {
namespace {

constexpr double kStallAtLeast = 10, kStallSteps = 5;         // one rank, while others go on
constexpr double kAllStallAtLeast = 60, kAllStallSteps = 10;  // all of them: a validation is not a stall
// ... and so many times as long as between its lines; of ranks with one line it is unknown.
constexpr double kStallLines = 2, kAllStallLines = 3, kUnknownGap = 200;
constexpr size_t kTypicalSteps = 16;  // the last ones of a rank say how long a step takes
constexpr size_t kHotSamples = 3, kCappedSamples = 8;
constexpr double kCappedClock = 0.85;  // of the highest
constexpr double kGrowthSpan = 60;     // seconds
constexpr size_t kGrowthPoints = 24;
constexpr double kGrowthBytes = 64 << 20, kGrowthPart = 0.05;
constexpr size_t kLossesBefore = 20;

std::string GiBText(double bytes) { return fmt::format("{:.2f} GiB", bytes / (1 << 30)); }

// Least squares: slope per second and how much of the variance it explains.
struct Line {
  double slope = 0, fit = 0;
};
Line Fit(const Window::Point* first, size_t count) {
  double t = 0, v = 0;
  for (size_t i = 0; i < count; ++i) {
    t += first[i].t / static_cast<double>(count);
    v += first[i].value / static_cast<double>(count);
  }
  double tt = 0, tv = 0, vv = 0;
  for (size_t i = 0; i < count; ++i) {
    const double dt = first[i].t - t, dv = first[i].value - v;
    tt += dt * dt;
    tv += dt * dv;
    vv += dv * dv;
  }
  if (!(tt > 0) || !(vv > 0)) return {};
  return {tv / tt, tv * tv / (tt * vv)};
}

std::string GpuName(const Window& window, int node, int gpu) {
  const std::optional<int> rank = window.RankOn(node, gpu);
  return fmt::format("GPU {} of node {}{}", gpu, node, rank ? fmt::format(" (rank {})", *rank) : "");
}

Finding OfGpu(const char* rule, const Window& window, const std::pair<int, int>& at, std::string text) {
  Finding finding;
  finding.rule = rule;
  finding.node = at.first;
  finding.gpu = at.second;
  finding.rank = window.RankOn(at.first, at.second);
  finding.text = std::move(text);
  return finding;
}

std::string ClockText(const record::GpuSample& gpu) {
  return fmt::format("{:.0f} of {} MHz", gpu.sm_clock.value_or(0),
                     gpu.sm_clock_max ? fmt::format("{:.0f}", *gpu.sm_clock_max) : "?");
}

}  // namespace

void FindStalls(const Window& window, const std::optional<Compared>&, double now, Findings* out) {
  std::vector<double> typical;
  double freshest = 1e18;  // age of the rank that was heard of last
  double rarest = 0;       // the longest time between two lines of a rank
  size_t running = 0;
  const auto age = [&](const Window::Rank& rank) { return window.NowOf(rank, now) - rank.last_t; };
  for (const auto& [number, rank] : window.ranks()) {
    if (rank.ended || rank.last_t == 0) continue;
    ++running;
    freshest = std::min(freshest, age(rank));
    for (const double gap : rank.gaps) rarest = std::max(rarest, gap);
    const size_t first = rank.steps.size() - std::min(rank.steps.size(), kTypicalSteps);
    for (size_t i = first; i < rank.steps.size(); ++i) {
      if (rank.steps[i].seconds > 0) typical.push_back(rank.steps[i].seconds);
    }
  }
  if (running == 0) return;
  const double step = Median(&typical);
  const auto between = [&](const Window::Rank& rank) {
    if (!rank.gaps.empty()) return *std::max_element(rank.gaps.begin(), rank.gaps.end());
    if (rarest > 0) return rarest;
    // The first line tells of so many steps at most.
    const double first =
        rank.steps.empty() ? 0 : rank.steps.back().seconds * static_cast<double>(rank.steps.back().step);
    return first > 0 ? std::min(first, kUnknownGap) : kUnknownGap;
  };
  const double all_limit = std::max(kAllStallAtLeast, kAllStallSteps * step);
  const bool all = std::all_of(window.ranks().begin(), window.ranks().end(), [&](const auto& item) {
    const Window::Rank& rank = item.second;
    return rank.ended || rank.last_t == 0 || age(rank) > std::max(all_limit, kAllStallLines * between(rank));
  });
  if (all) {
    Finding finding;
    finding.rule = "stalled";
    finding.text = fmt::format("no rank has written a step for {:.0f} s", freshest);
    finding.evidence = fmt::format("{} heard of; {}`lockstep doctor hang` says where they stand",
                                   running == 1 ? "1 rank" : fmt::format("{} ranks", running),
                                   step > 0 ? fmt::format("a step takes {}; ", SecondsText(step)) : "");
    out->push_back(std::move(finding));
    return;
  }
  for (const auto& [number, rank] : window.ranks()) {
    const double limit = std::max({kStallAtLeast, kStallSteps * step, kStallLines * between(rank)});
    if (rank.ended || rank.last_t == 0 || !(age(rank) - freshest > limit)) continue;
    Finding finding;
    finding.rule = "stalled";
    finding.rank = number;
    finding.node = rank.node;
    finding.text = fmt::format("rank {} stands still: no step for {:.0f} s while others go on", number, age(rank));
    if (!rank.steps.empty()) {
      finding.evidence = fmt::format("its last step is {}; a step takes {}", rank.steps.back().step, SecondsText(step));
    }
    out->push_back(std::move(finding));
  }
}

void FindGpuTrouble(const Window& window, const std::optional<Compared>&, double, Findings* out) {
  for (const auto& [at, gpu] : window.gpus()) {
    if (gpu.recent.empty()) continue;
    const record::GpuSample& last = gpu.recent.back();
    const std::string name = GpuName(window, at.first, at.second);
    const auto share = [&](size_t wanted, auto&& test) {
      const size_t count = std::min(gpu.recent.size(), wanted + wanted / 4);
      const auto hit = std::count_if(gpu.recent.end() - static_cast<std::ptrdiff_t>(count), gpu.recent.end(), test);
      return static_cast<size_t>(hit) >= wanted;
    };
    if (!last.error.empty()) {
      out->push_back(OfGpu("gpu-error", window, at, fmt::format("{}: {}", name, last.error)));
      out->back().evidence = "NVML's answer when it was last read";
    } else if (last.xid) {
      out->push_back(OfGpu("gpu-error", window, at, fmt::format("{} reported Xid {}", name, *last.xid)));
      out->back().evidence = "a critical error event of the driver since the launcher started";
    } else if (const auto& first = gpu.recent.front();
               last.ecc_uncorrected && first.ecc_uncorrected && *last.ecc_uncorrected > *first.ecc_uncorrected) {
      out->push_back(OfGpu("gpu-error", window, at, fmt::format("{} has new uncorrected ECC errors", name)));
      out->back().evidence = fmt::format("{:.0f} now, {:.0f} before", *last.ecc_uncorrected, *first.ecc_uncorrected);
    }
    const std::string words = fmt::format("{}", fmt::join(last.throttle, ", "));
    if (last.ThrottledByHeat() && share(kHotSamples, [](const auto& one) { return one.ThrottledByHeat(); })) {
      out->push_back(OfGpu(
          "thermal-throttling", window, at,
          fmt::format("{} is throttled by heat: {:.0f} C, {}", name, last.temperature.value_or(0), ClockText(last))));
      out->back().evidence = words;
    } else if (last.ThrottledByPower() && share(kCappedSamples, [](const auto& one) {
                 return one.ThrottledByPower() && one.sm_clock && one.sm_clock_max &&
                        *one.sm_clock < kCappedClock * *one.sm_clock_max;
               })) {
      out->push_back(
          OfGpu("power-cap", window, at,
                fmt::format("{} is held back by its power limit: {:.0f} of {} W, {}", name, last.power.value_or(0),
                            last.power_limit ? fmt::format("{:.0f}", *last.power_limit) : "?", ClockText(last))));
      out->back().evidence = words;
    }
  }
}

void FindLinkErrors(const Window& window, const std::optional<Compared>&, double, Findings* out) {
  std::map<std::string, double> fastest;  // by kind
  for (const auto& [at, link] : window.links()) {
    if (link.recent.empty() || !link.recent.back().second.speed) continue;
    double& speed = fastest[link.recent.back().second.kind];
    speed = std::max(speed, *link.recent.back().second.speed);
  }
  for (const auto& [at, link] : window.links()) {
    if (link.recent.empty()) continue;
    const auto& [first_t, first] = link.recent.front();
    const auto& [last_t, last] = link.recent.back();
    Finding finding;
    finding.node = at.first;
    finding.stage = "network";
    if (first.errors && last.errors && *last.errors > *first.errors) {
      finding.rule = "link-errors";
      finding.text = fmt::format("{} of node {} counts errors: {:.0f} in {:.0f} s", at.second, at.first,
                                 *last.errors - *first.errors, last_t - first_t);
      finding.evidence = fmt::format("{:.0f} since the machine started", *last.errors);
      out->push_back(finding);
    }
    if (last.speed && *last.speed < 0.9 * fastest[last.kind]) {
      finding.rule = "slow-link";
      finding.text = fmt::format("{} of node {} runs at {:.0f} Gbit/s, others at {:.0f}", at.second, at.first,
                                 *last.speed, fastest[last.kind]);
      finding.evidence = "speed as the adapter states it";
      out->push_back(finding);
    }
  }
}

// A leak: memory that rises evenly and goes on rising. What is allocated once, or fills a cache, levels off.
void FindMemoryGrowth(const Window& window, const std::optional<Compared>&, double, Findings* out) {
  const Window::Rank* worst = nullptr;
  int number = 0, more = 0;
  Line steepest;
  for (const auto& [rank, one] : window.ranks()) {
    if (one.ended || one.memory.size() < kGrowthPoints) continue;
    const size_t skip = one.memory.size() / 4;  // the beginning always grows
    const Window::Point* first = one.memory.data() + skip;
    const size_t count = one.memory.size() - skip, half = count / 2;
    const double span = first[count - 1].t - first->t;
    const Line line = Fit(first, count), early = Fit(first, half), late = Fit(first + half, count - half);
    const double growth = line.slope * span;
    if (!(span >= kGrowthSpan) || !(growth >= std::max(kGrowthBytes, kGrowthPart * first->value))) continue;
    if (!(line.fit >= 0.9) || late.slope < 0.5 * early.slope || late.slope < 0.5 * line.slope) continue;
    ++more;
    if (worst != nullptr && line.slope <= steepest.slope) continue;
    worst = &one;
    number = rank;
    steepest = line;
  }
  if (worst == nullptr) return;
  const Window::Point &first = worst->memory[worst->memory.size() / 4], &last = worst->memory.back();
  Finding finding;
  finding.rule = "memory-growth";
  finding.rank = number;
  finding.node = worst->node;
  finding.text = fmt::format("memory of rank {} grows: {} per hour{}", number, GiBText(steepest.slope * 3600),
                             more > 1 ? fmt::format(" ({} ranks do)", more) : "");
  finding.evidence = fmt::format("{} to {} in {:.0f} s, evenly (R2 {:.2f}) and still rising", GiBText(first.value),
                                 GiBText(last.value), last.t - first.t, steepest.fit);
  if (const auto node = window.nodes().find(worst->node); node != window.nodes().end() && node->second.memory_total) {
    const double left = (*node->second.memory_total - last.value) / (steepest.slope * more);
    if (left > 0) finding.evidence += fmt::format("; the node's memory lasts {:.1f} h more at this pace", left / 3600);
  }
  out->push_back(std::move(finding));
}

void FindLossTrouble(const Window& window, const std::optional<Compared>&, double, Findings* out) {
  const auto& losses = window.losses();
  if (losses.empty()) return;
  const auto bad =
      std::find_if(losses.begin(), losses.end(), [](const auto& one) { return !std::isfinite(one.second); });
  if (!std::isfinite(losses.back().second)) {
    const auto count =
        std::count_if(losses.begin(), losses.end(), [](const auto& one) { return !std::isfinite(one.second); });
    Finding finding;
    finding.rule = "nan-loss";
    finding.text = fmt::format("the loss is not finite ({}) since step {}", losses.back().second, bad->first);
    finding.evidence = fmt::format("{} of the last {} losses; last finite one: {}", count, losses.size(),
                                   bad == losses.begin() ? "none seen" : fmt::format("{:.4g}", std::prev(bad)->second));
    out->push_back(std::move(finding));
    return;
  }
  // The newest spike among the last losses, against those before it.
  for (size_t at = losses.size(); at-- > kLossesBefore;) {
    if (losses.size() - at > 64) break;
    std::vector<double> before;
    for (size_t i = at - std::min<size_t>(at, 64); i < at; ++i) {
      if (std::isfinite(losses[i].second)) before.push_back(losses[i].second);
    }
    if (before.size() < kLossesBefore) break;
    const double middle = Median(&before);
    std::vector<double> away;
    for (const double value : before) away.push_back(std::abs(value - middle));
    const double spread = Median(&away);
    const double loss = losses[at].second;
    if (!std::isfinite(loss) || loss - middle < std::max(12 * spread, 0.5 * std::abs(middle))) continue;
    Finding finding;
    finding.rule = "loss-spike";
    finding.text = fmt::format("the loss jumped to {:.4g} at step {}, from {:.4g}", loss, losses[at].first, middle);
    finding.evidence = fmt::format("median of the {} losses before: {:.4g}, typical distance from it {:.2g}",
                                   before.size(), middle, spread);
    out->push_back(std::move(finding));
    return;
  }
}

std::vector<Finding> FindAll(const Window& window, double now) {
  // Later rules may look at what earlier ones found.
  constexpr void (*kRules[])(const Window&, const std::optional<Compared>&, double, Findings*) = {
      FindLossTrouble, FindStalls,    FindGpuTrouble, FindStragglers, FindRepeatedDelays,
      FindPauses,      FindSlowLinks, FindBounds,     FindLinkErrors, FindMemoryGrowth};
  Findings found;
  const std::optional<Compared> compared = CompareRanks(window, now);
  for (const auto rule : kRules) rule(window, compared, now, &found);
  return found;
}

}  // namespace lockstep::watch
