#include "watch/grids.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>

#include "base/columns.h"
#include "base/text.h"
#include "watch/numbers.h"

namespace lockstep::watch {
namespace {

constexpr double kHot = 85, kVeryHot = 92;  // degrees Celsius
constexpr double kMuchWait = 0.25, kVeryMuchWait = 0.5;
constexpr double kNearlyFull = 0.92;

std::string WithUnit(const std::optional<double>& value, std::string_view unit) {
  const std::string text = WholeText(value);
  return text == kUnknown ? text : text + std::string(unit);
}

Style WaitStyle(const std::optional<double>& part) {
  if (!part) return Style::kPlain;
  return *part >= kVeryMuchWait ? Style::kBad : *part >= kMuchWait ? Style::kWarn : Style::kPlain;
}

Style HeatStyle(const std::optional<double>& degrees) {
  if (!degrees) return Style::kPlain;
  return *degrees >= kVeryHot ? Style::kBad : *degrees >= kHot ? Style::kWarn : Style::kPlain;
}

Style FullStyle(const std::optional<double>& used, const std::optional<double>& total) {
  return used && total && *total > 0 && *used / *total >= kNearlyFull ? Style::kWarn : Style::kPlain;
}

// NVML's reasons in a word each: "heat", "power".
std::string ThrottleText(const std::vector<std::string>& reasons) {
  std::vector<std::string> words;
  for (const std::string& reason : reasons) {
    const std::string word = reason.find("thermal") != std::string::npos ? "heat"
                             : reason.find("power") != std::string::npos ? "power"
                                                                         : Printable(reason, 24);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return Join(words, ",");
}

Style ThrottleStyle(const GpuView& gpu) {
  const std::string text = ThrottleText(gpu.throttle);
  return text.find("heat") != std::string::npos ? Style::kBad : text.empty() ? Style::kPlain : Style::kWarn;
}

using Value = std::optional<double>;

Value OfStep(const RankView& rank) { return rank.step ? Value(static_cast<double>(*rank.step)) : std::nullopt; }

// Time of a step in which the rank itself worked: what is left without the wait for others.
double OwnSeconds(const RankView& rank) {
  return rank.seconds_per_step.value_or(0) - rank.collective_seconds.value_or(0);
}

// What an order sorts by, and whether the largest comes first.
struct OrderRow {
  RankOrder order;
  std::string_view name;
  bool largest_first;
  Value (*value)(const RankView&, const GpuView*, double now);
};

constexpr std::array kOrders = {
    OrderRow{RankOrder::kRank, "rank", false,
             [](const RankView& rank, const GpuView*, double) { return Value(rank.rank); }},
    OrderRow{RankOrder::kStep, "step", false,
             [](const RankView& rank, const GpuView*, double) { return OfStep(rank); }},
    OrderRow{RankOrder::kSeconds, "s/it", true,
             [](const RankView& rank, const GpuView*, double) { return rank.seconds_per_step; }},
    OrderRow{RankOrder::kData, "data wait", true,
             [](const RankView& rank, const GpuView*, double) { return rank.DataWait(); }},
    OrderRow{RankOrder::kCollective, "collective wait", false,
             [](const RankView& rank, const GpuView*, double) { return rank.CollectiveWait(); }},
    OrderRow{RankOrder::kUtilisation, "GPU utilisation", false,
             [](const RankView&, const GpuView* gpu, double) { return gpu ? gpu->utilisation : Value(); }},
    OrderRow{RankOrder::kMemory, "GPU memory", true,
             [](const RankView& rank, const GpuView* gpu, double) {
               return gpu && gpu->memory_used ? gpu->memory_used : rank.memory_device;
             }},
    OrderRow{RankOrder::kTemperature, "temperature", true,
             [](const RankView&, const GpuView* gpu, double) { return gpu ? gpu->temperature : Value(); }},
    OrderRow{RankOrder::kCpu, "CPU", true, [](const RankView& rank, const GpuView*, double) { return rank.cpu; }},
    OrderRow{RankOrder::kRss, "RSS", true,
             [](const RankView& rank, const GpuView*, double) { return rank.rss ? rank.rss : rank.memory_host; }},
    OrderRow{RankOrder::kLoss, "loss", true, [](const RankView& rank, const GpuView*, double) { return rank.loss; }},
    OrderRow{RankOrder::kSeen, "last line", false,
             [](const RankView& rank, const GpuView*, double) {
               return rank.last_seen > 0 ? Value(rank.last_seen) : Value();
             }},
};

// Those a finding names, those that are silent or slowed by heat, those behind in steps, then the ones that work
// longest themselves.
std::vector<size_t> ByTrouble(const RunView& view, double now) {
  struct Trouble {
    size_t at;
    int level;
    uint64_t step;
    double own;
  };
  std::vector<Trouble> list;
  for (size_t i = 0; i < view.ranks.size(); ++i) {
    const RankView& rank = view.ranks[i];
    const bool found = std::any_of(view.findings.begin(), view.findings.end(),
                                   [&](const FindingView& finding) { return finding.rank == rank.rank; });
    const GpuView* gpu = view.GpuOf(rank);
    const bool slowed = gpu != nullptr && ThrottleStyle(*gpu) == Style::kBad;
    const int level = found ? 2 : slowed || (!view.ended && rank.Silent(now)) ? 1 : 0;
    list.push_back({i, level, rank.step.value_or(0), OwnSeconds(rank)});
  }
  std::sort(list.begin(), list.end(), [](const Trouble& a, const Trouble& b) {
    return std::tuple(-a.level, a.step, a.at) < std::tuple(-b.level, b.step, b.at);
  });
  // Ranks are read one after the other: a step of difference says nothing, the work of their own does.
  for (size_t begin = 0; begin < list.size();) {
    size_t end = begin + 1;
    while (end < list.size() && list[end].level == list[begin].level && list[end].step <= list[begin].step + 1) ++end;
    std::sort(list.begin() + static_cast<long>(begin), list.begin() + static_cast<long>(end),
              [](const Trouble& a, const Trouble& b) { return std::pair(-a.own, a.at) < std::pair(-b.own, b.at); });
    begin = end;
  }
  std::vector<size_t> order;
  for (const Trouble& one : list) order.push_back(one.at);
  return order;
}

// Ranks as "0-3,7".
std::string Ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (j > i) text += fmt::format("-{}", ranks[j]);
    i = j + 1;
  }
  return text;
}

Span Known(std::string text, Style style = Style::kPlain) {
  const bool unknown = text == kUnknown || text.empty();
  return {unknown ? std::string(kUnknown) : std::move(text), unknown ? Style::kDim : style};
}

// One row of the rank table; its columns are in RankGrid.
GridRow RankCells(const RunView& view, const RankView& rank, double now, std::optional<uint64_t> front) {
  static const GpuView kNone;
  const GpuView* found = view.GpuOf(rank);
  const GpuView& gpu = found != nullptr ? *found : kNone;
  const bool silent = !view.ended && rank.Silent(now);
  const bool behind = front && rank.step && *rank.step + 2 < *front;
  const Value memory = gpu.memory_used ? gpu.memory_used : rank.memory_device;
  const std::string seen = rank.last_seen > 0 ? AgeText(std::max(0.0, now - rank.last_seen)) : kUnknown;
  const bool bad_loss = rank.loss && !std::isfinite(*rank.loss);
  return {{fmt::format("{}", rank.rank), Style::kBold},
          Known(rank.node >= 0 ? fmt::format("{}", rank.node) : ""),
          Known(StepText(rank.step, std::nullopt), behind ? Style::kWarn : Style::kPlain),
          Known(SecondsText(rank.seconds_per_step)),
          Known(PercentText(rank.DataWait()), WaitStyle(rank.DataWait())),
          Known(PercentText(rank.CollectiveWait())),
          Known(rank.gpu >= 0 ? fmt::format("{}", rank.gpu) : ""),
          Known(WithUnit(gpu.utilisation, "%")),
          Known(ShortBytes(memory), FullStyle(memory, gpu.memory_total)),
          Known(WithUnit(gpu.temperature, "C"), HeatStyle(gpu.temperature)),
          Known(WithUnit(gpu.power, "W")),
          Known(WholeText(gpu.clock), ThrottleStyle(gpu)),
          Known(ThrottleText(gpu.throttle), ThrottleStyle(gpu)),
          Known(WithUnit(rank.cpu, "%")),
          Known(ShortBytes(rank.rss ? rank.rss : rank.memory_host)),
          Known(LossText(rank.loss), bad_loss ? Style::kBad : Style::kPlain),
          Known(seen, silent ? Style::kBad : Style::kPlain),
          Known(silent                        ? "silent"
                : rank.attempt < view.attempt ? fmt::format("attempt {}", rank.attempt)
                                              : "",
                silent ? Style::kBad : Style::kWarn)};
}

}  // namespace

std::string_view RankOrderName(RankOrder order) {
  const auto at = std::find_if(kOrders.begin(), kOrders.end(), [&](const OrderRow& row) { return row.order == order; });
  return at == kOrders.end() ? "attention" : at->name;
}

RankOrder NextRankOrder(RankOrder order) {
  const int next = static_cast<int>(order) + 1;
  return next > static_cast<int>(RankOrder::kTrouble) ? RankOrder::kRank : static_cast<RankOrder>(next);
}

std::vector<size_t> OrderRanks(const RunView& view, RankOrder order, bool reverse, double now) {
  std::vector<size_t> which;
  const auto row =
      std::find_if(kOrders.begin(), kOrders.end(), [&](const OrderRow& one) { return one.order == order; });
  if (row == kOrders.end()) {
    which = ByTrouble(view, now);
    if (reverse) std::reverse(which.begin(), which.end());
    return which;
  }
  which.resize(view.ranks.size());
  std::iota(which.begin(), which.end(), size_t{0});
  std::vector<Value> values;
  for (const RankView& rank : view.ranks) {
    Value value = row->value(rank, view.GpuOf(rank), now);
    if (value && std::isnan(*value)) value = INFINITY;  // a loss that is no number is the worst there is
    values.push_back(value);
  }
  const bool falling = row->largest_first != reverse;
  std::sort(which.begin(), which.end(), [&](size_t a, size_t b) {
    if (values[a].has_value() != values[b].has_value()) return values[a].has_value();
    if (values[a] != values[b]) return falling ? *values[a] > *values[b] : *values[a] < *values[b];
    return a < b;
  });
  return which;
}

StyledLines RankGrid(const RunView& view, const std::vector<size_t>& which, double now, size_t width) {
  static const std::vector<GridColumn> kColumns = {
      {"RANK", 100}, {"NODE", 20}, {"STEP", 95}, {"S/IT", 90},  {"DATA", 70},  {"COLL", 80},           {"GPU", 15},
      {"UTIL", 75},  {"GMEM", 72}, {"TEMP", 60}, {"POWER", 50}, {"CLOCK", 45}, {"THROTTLE", 44, true}, {"CPU", 65},
      {"RSS", 64},   {"LOSS", 55}, {"SEEN", 85}, {"", 40, true}};
  std::optional<uint64_t> front;
  for (const RankView& rank : view.ranks) {
    if (rank.step) front = std::max(front.value_or(0), *rank.step);
  }
  std::vector<GridRow> rows;
  for (const size_t at : which) {
    GridRow row = RankCells(view, view.ranks[at], now, front);
    if (view.nnodes <= 1 && view.nodes.size() <= 1) row[1].text = kUnknown;
    rows.push_back(std::move(row));
  }
  return FitGrid(kColumns, rows, width);
}

StyledLine RestOfRanks(const RunView& view, const std::vector<size_t>& order, size_t shown) {
  uint64_t low = UINT64_MAX, high = 0;
  double fast = INFINITY, slow = 0;
  int slowest = -1;
  for (size_t i = shown; i < order.size(); ++i) {
    const RankView& rank = view.ranks[order[i]];
    if (rank.step) low = std::min(low, *rank.step), high = std::max(high, *rank.step);
    if (!rank.seconds_per_step) continue;
    fast = std::min(fast, *rank.seconds_per_step);
    if (*rank.seconds_per_step > slow) slow = *rank.seconds_per_step, slowest = rank.rank;
  }
  std::string text = fmt::format("... and {} more rank{}", order.size() - shown, order.size() - shown == 1 ? "" : "s");
  if (low <= high) text += low == high ? fmt::format(", step {}", low) : fmt::format(", steps {} to {}", low, high);
  const std::string least = fmt::format("{:.3f}", fast), most = fmt::format("{:.3f}", slow);
  if (slowest >= 0) text += fmt::format(", {} s/it", least == most ? most : least + " to " + most);
  if (slow > 1.05 * fast) text += fmt::format(", slowest rank {}", slowest);
  return {{text, Style::kDim}};
}

std::string MissingRanks(const RunView& view) {
  std::vector<int> missing;
  size_t next = 0;
  for (int rank = 0; rank < view.world && rank < 1 << 20; ++rank) {
    while (next < view.ranks.size() && view.ranks[next].rank < rank) ++next;
    const bool here = next < view.ranks.size() && view.ranks[next].rank == rank && view.ranks[next].step;
    if (!here) missing.push_back(rank);
  }
  const std::string none = view.ended ? "no step" : "no step yet";
  if (missing.empty()) return view.ranks.empty() && view.world == 0 ? "no step seen yet" : "";
  if (missing.size() == static_cast<size_t>(view.world)) {
    return view.world == 1 ? none : fmt::format("{} of any of the {} ranks", none, view.world);
  }
  return fmt::format("{} of rank{} {}", none, missing.size() > 1 ? "s" : "", Ranges(missing));
}

StyledLines NodeGrid(const RunView& view, double now, size_t width) {
  static const std::vector<GridColumn> kColumns = {{"NODE", 100}, {"HOST", 90, true}, {"RANKS", 50}, {"CPU", 80},
                                                   {"CORES", 30}, {"LOAD", 40},       {"MEM", 75},   {"OF", 35},
                                                   {"GPUS", 45},  {"UTIL", 85},       {"GMEM", 70},  {"TEMP", 65},
                                                   {"POWER", 60}, {"THROTTLED", 62},  {"SEEN", 77}};
  std::map<int, int> ranks_of;
  for (const RankView& rank : view.ranks) ++ranks_of[rank.node];
  std::vector<GridRow> rows;
  for (const NodeView& node : view.nodes) {
    const int ranks = ranks_of[node.node];
    Value utilisation, memory, hottest, power;
    int known = 0, throttled = 0;
    for (const GpuView& gpu : node.gpus) {
      if (gpu.utilisation) utilisation = utilisation.value_or(0) + *gpu.utilisation, ++known;
      if (gpu.memory_used) memory = memory.value_or(0) + *gpu.memory_used;
      if (gpu.temperature) hottest = std::max(hottest.value_or(0), *gpu.temperature);
      if (gpu.power) power = power.value_or(0) + *gpu.power;
      throttled += !gpu.throttle.empty();
    }
    if (utilisation) *utilisation /= known;
    const double age = node.t > 0 ? std::max(0.0, now - node.t) : -1;
    const bool old = !view.ended && age > 30;
    rows.push_back({{fmt::format("{}", node.node), Style::kBold},
                    Known(OneLine(node.host, 40)),
                    Known(ranks > 0 ? fmt::format("{}", ranks) : ""),
                    Known(WithUnit(node.cpu, "%")),
                    Known(WholeText(node.cores)),
                    Known(node.load ? fmt::format("{:.1f}", *node.load) : ""),
                    Known(ShortBytes(node.memory_used), FullStyle(node.memory_used, node.memory_total)),
                    Known(ShortBytes(node.memory_total)),
                    Known(node.gpus.empty() ? "" : fmt::format("{}", node.gpus.size())),
                    Known(WithUnit(utilisation, "%")),
                    Known(ShortBytes(memory)),
                    Known(WithUnit(hottest, "C"), HeatStyle(hottest)),
                    Known(WithUnit(power, "W")),
                    Known(throttled > 0 ? fmt::format("{}", throttled) : "", Style::kWarn),
                    Known(age >= 0 ? AgeText(age) : "", old ? Style::kBad : Style::kPlain)});
  }
  return rows.empty() ? StyledLines{} : FitGrid(kColumns, rows, width);
}

StyledLines GpuGrid(const RunView& view, size_t width) {
  static const std::vector<GridColumn> kColumns = {
      {"NODE", 80},           {"GPU", 100},  {"NAME", 30, true}, {"RANKS", 70, true},
      {"UTIL", 95},           {"MEM", 90},   {"OF", 50},         {"TEMP", 85},
      {"POWER", 75},          {"LIMIT", 20}, {"CLOCK", 65},      {"MAX", 15},
      {"THROTTLE", 74, true}, {"XID", 73},   {"ECC", 72},        {"", 71, true}};
  std::map<std::pair<int, int>, std::vector<int>> ranks_of;
  for (const RankView& rank : view.ranks) ranks_of[{rank.node, rank.gpu}].push_back(rank.rank);
  std::vector<GridRow> rows;
  for (const NodeView& node : view.nodes) {
    for (const GpuView& gpu : node.gpus) {
      const std::vector<int>& ranks = ranks_of[{node.node, gpu.index}];
      const bool uncorrected = gpu.ecc_uncorrected.value_or(0) > 0;
      rows.push_back({Known(fmt::format("{}", node.node)),
                      {fmt::format("{}", gpu.index), Style::kBold},
                      Known(OneLine(gpu.name, 32)),
                      Known(Ranges(ranks)),
                      Known(WithUnit(gpu.utilisation, "%")),
                      Known(ShortBytes(gpu.memory_used), FullStyle(gpu.memory_used, gpu.memory_total)),
                      Known(ShortBytes(gpu.memory_total)),
                      Known(WithUnit(gpu.temperature, "C"), HeatStyle(gpu.temperature)),
                      Known(WithUnit(gpu.power, "W")),
                      Known(WithUnit(gpu.power_limit, "W")),
                      Known(WholeText(gpu.clock), ThrottleStyle(gpu)),
                      Known(WholeText(gpu.clock_max)),
                      Known(ThrottleText(gpu.throttle), ThrottleStyle(gpu)),
                      Known(gpu.xid ? fmt::format("{}", *gpu.xid) : "", Style::kBad),
                      Known(uncorrected ? WholeText(gpu.ecc_uncorrected) : "", Style::kBad),
                      Known(OneLine(gpu.error, 60), Style::kBad)});
    }
  }
  return rows.empty() ? StyledLines{} : FitGrid(kColumns, rows, width);
}

StyledLines LinkGrid(const RunView& view, size_t width) {
  static const std::vector<GridColumn> kColumns = {{"NODE", 80},   {"LINK", 100, true}, {"KIND", 40, true},
                                                   {"GBIT/S", 50}, {"IN", 95},          {"OUT", 94},
                                                   {"USED", 60},   {"ERRORS", 90},      {"", 30, true}};
  std::vector<GridRow> rows;
  for (const NodeView& node : view.nodes) {
    for (const LinkView& link : node.links) {
      Value used;
      if (link.speed && *link.speed > 0 && (link.receive || link.send)) {
        used = std::max(link.receive.value_or(0), link.send.value_or(0)) * 8 / (*link.speed * 1e9);
      }
      const bool errors = link.errors.value_or(0) > 0;
      rows.push_back({Known(fmt::format("{}", node.node)),
                      {OneLine(link.name, 32), Style::kBold},
                      Known(OneLine(link.kind, 24)),
                      Known(WholeText(link.speed)),
                      Known(RateText(link.receive)),
                      Known(RateText(link.send)),
                      Known(PercentText(used)),
                      Known(WholeText(link.errors), errors ? Style::kWarn : Style::kPlain),
                      Known(link.off.empty() ? "" : "not read: " + OneLine(link.off, 80), Style::kDim)});
    }
  }
  return rows.empty() ? StyledLines{} : FitGrid(kColumns, rows, width);
}

StyledLines RunGrid(const std::vector<const RunView*>& views, size_t width) {
  static const std::vector<GridColumn> kColumns = {
      {"RUN", 100, true}, {"STATE", 90, true}, {"STEP", 85}, {"S/IT", 80},  {"SAMPLES/S", 50}, {"ETA", 70},
      {"LOSS", 75},       {"DATA", 40},        {"COLL", 40}, {"RANKS", 45}, {"FOR", 30},       {"FINDINGS", 60}};
  std::vector<GridRow> rows;
  for (const RunView* view : views) {
    rows.push_back({{OneLine(view->name, 48), Style::kBold},
                    {view->state, StateStyle(view->state)},
                    Known(StepText(view->step, view->total)),
                    Known(SecondsText(view->seconds_per_step)),
                    Known(PerSecondText(view->samples_per_second)),
                    Known(view->eta ? TimeText(*view->eta) : ""),
                    Known(LossText(view->loss)),
                    Known(PercentText(view->data_wait), WaitStyle(view->data_wait)),
                    Known(PercentText(view->collective_wait)),
                    Known(view->world > 0          ? fmt::format("{}", view->world)
                          : view->ranks.size() > 1 ? fmt::format("{}", view->ranks.size())
                                                   : ""),
                    Known(view->duration > 0 ? TimeText(view->duration) : ""),
                    Known(view->findings.empty() ? "" : fmt::format("{}", view->findings.size()), Style::kWarn)});
  }
  return FitGrid(kColumns, rows, width);
}

Style StateStyle(std::string_view state) {
  static constexpr std::pair<std::string_view, Style> kStyles[] = {
      {"running", Style::kGood}, {"succeeded", Style::kGood}, {"complete", Style::kGood}, {"failed", Style::kBad},
      {"lost", Style::kBad},     {"stopped", Style::kWarn},   {"silent", Style::kWarn},   {"removed", Style::kBad}};
  for (const auto& [name, style] : kStyles) {
    if (state == name) return style;
  }
  return Style::kPlain;
}

}  // namespace lockstep::watch
