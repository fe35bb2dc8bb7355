// Who is slow. In a synchronous step everybody takes the same time: the slow rank works while the others wait for it in
// collectives. So ranks are compared by what they did themselves, step by step, and by medians, which the noise of a
// busy machine does not move.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "watch/finding_rules.h"

namespace lockstep::watch {
namespace {

constexpr double kSpan = 5;                 // seconds of steps that are compared
constexpr size_t kLeastSteps = 5;           // at least, however long they are
constexpr size_t kMostCompared = 1u << 15;  // steps times ranks
constexpr uint64_t kWarmUp = 3;             // steps of an attempt that are not compared
constexpr double kPart = 0.25;              // of a step: less is not worth a word
constexpr double kPartWhenFull = 0.4;       // where all CPUs are busy, some rank gets less of them for a while
constexpr double kLeast = 0.002;            // seconds
constexpr double kSteady = 0.7;             // of the steps
constexpr double kLongSpan = 10;            // seconds: of delays that come back now and then
constexpr double kLeastTime = 2;            // seconds of steps, of which such delays are a part
constexpr size_t kLeastDelays = 8;          // fewer may hit the same rank by chance, but saving is no chance
constexpr size_t kLeastSaves = 4;
constexpr double kAlone = 4;     // times as much as anybody else: a busy machine delays now one, now another
constexpr double kBlamed = 0.6;  // of the wait: for one rank
constexpr double kPauseAtLeast = 2, kPauseSteps = 10;
constexpr size_t kCollective = 3;  // in record::kStageNames
constexpr size_t kData = 0;

struct OneStep {
  double own = 0, collective = 0;
  double stages[Window::kStages] = {};
  double rest = 0;
};

OneStep Read(const Window::Step& step) {
  OneStep one;
  double sum = 0;
  for (size_t k = 0; k < Window::kStages; ++k) {
    one.stages[k] = std::max(0.0, step.stages[k].value_or(0));
    sum += one.stages[k];
    if (k != kCollective) one.own += one.stages[k];
  }
  one.collective = one.stages[kCollective];
  one.rest = std::max(0.0, step.seconds - sum);
  one.own += one.rest;
  return one;
}

constexpr size_t kFew = 16;  // ranks: of more, one does not move the median

// The median of the others; with many ranks, of all.
double Others(const std::vector<double>& values, size_t without) {
  std::vector<double> rest = values;
  if (rest.size() <= kFew) rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(without));
  return Median(&rest);
}

const Window::Step* At(const Window::Rank& rank, uint64_t step) {
  const auto it = std::lower_bound(rank.steps.begin(), rank.steps.end(), step,
                                   [](const Window::Step& one, uint64_t number) { return one.step < number; });
  return it == rank.steps.end() || it->step != step ? nullptr : &*it;
}

// Steps that every rank has, of the last `span` seconds, the newest last.
std::vector<uint64_t> CommonSteps(const std::vector<const Window::Rank*>& ranks, double span) {
  std::vector<uint64_t> steps;
  const Window::Rank& lead = *ranks.front();
  uint64_t newest = UINT64_MAX, first = 0;
  for (const Window::Rank* rank : ranks) {
    newest = std::min(newest, rank->steps.back().step);
    first = std::max(first, rank->first_step + kWarmUp);
  }
  double from = 0;
  const size_t most = std::max<size_t>(2 * kLeastSteps, kMostCompared / ranks.size());
  for (auto it = lead.steps.rbegin(); it != lead.steps.rend() && steps.size() < most; ++it) {
    if (it->step > newest) continue;
    if (it->step < first) break;
    if (from == 0) from = it->t - span;
    if (it->t < from && steps.size() >= kLeastSteps) break;
    const bool all = std::all_of(ranks.begin(), ranks.end(), [&](const auto* rank) { return At(*rank, it->step); });
    if (all) steps.push_back(it->step);
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

// What the excess is made of; `rest`: what no stage explains.
std::string StageOf(const double (&stages)[Window::kStages], double rest) {
  size_t best = Window::kStages;
  double most = rest;
  for (size_t k = 0; k < Window::kStages; ++k) {
    if (k != kCollective && stages[k] > most) {
      most = stages[k];
      best = k;
    }
  }
  return best == Window::kStages ? "compute" : std::string(record::kStageNames[best]);
}

bool CpuIsFull(const Window& window) {
  return std::any_of(window.nodes().begin(), window.nodes().end(), [](const auto& entry) {
    const Window::Node& node = entry.second;
    return node.cpu_percent && node.cpu_cores && *node.cpu_percent >= 90 * *node.cpu_cores;
  });
}

bool Has(const Findings& list, std::string_view rule) {
  return std::any_of(list.begin(), list.end(), [&](const Finding& one) { return one.rule == rule; });
}

}  // namespace

double Median(std::vector<double>* values) {
  if (values->empty()) return 0;
  const auto middle = values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  if (values->size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values->begin(), middle)) / 2;
}

std::string SecondsText(double seconds) {
  return seconds < 0.1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

std::optional<Compared> CompareRanks(const Window& window, double now) {
  std::vector<const Window::Rank*> ranks;
  Compared found;
  for (const auto& [number, rank] : window.ranks()) {
    if (rank.ended || rank.steps.empty()) continue;
    ranks.push_back(&rank);
    found.ranks.emplace_back();
    found.ranks.back().rank = number;
  }
  if (ranks.empty()) return std::nullopt;
  const std::vector<uint64_t> steps = CommonSteps(ranks, kSpan);
  if (steps.size() < kLeastSteps) return std::nullopt;
  found.steps = steps.size();
  found.first = steps.front();
  found.last = steps.back();
  found.numbers = steps;

  const size_t n = ranks.size();
  std::vector<double> durations, values(n);
  struct Lists {
    std::vector<double> own, excess, collective, rest, stages[Window::kStages];
  };
  std::vector<Lists> lists(n);
  std::vector<OneStep> row(n);
  found.stages = true;
  for (const uint64_t number : steps) {
    for (size_t r = 0; r < n; ++r) {
      const Window::Step& step = *At(*ranks[r], number);
      row[r] = Read(step);
      found.stages = found.stages && step.stages[kCollective].has_value();
      values[r] = step.seconds;
      if (step.wait_peer >= 0) found.ranks[r].waited_for[step.wait_peer] += step.wait_seconds;
      found.ranks[r].mean_collective += row[r].collective / static_cast<double>(steps.size());
      found.ranks[r].data += row[r].stages[kData] / static_cast<double>(steps.size());
    }
    const auto less = [](const OneStep& a, const OneStep& b) { return a.collective < b.collective; };
    found.together += std::min_element(row.begin(), row.end(), less)->collective / static_cast<double>(steps.size());
    durations.push_back(Median(&values));
    found.seconds += durations.back();
    const auto compare = [&](auto&& value, auto&& list) {
      for (size_t r = 0; r < n; ++r) values[r] = value(row[r]);
      const std::optional<double> of_all = n > kFew ? std::optional(Others(values, 0)) : std::nullopt;
      for (size_t r = 0; r < n; ++r) {
        list(lists[r]).push_back(n == 1 ? 0 : values[r] - (of_all ? *of_all : Others(values, r)));
      }
    };
    compare([](const OneStep& one) { return one.own; }, [](Lists& l) -> auto& { return l.excess; });
    compare([](const OneStep& one) { return one.rest; }, [](Lists& l) -> auto& { return l.rest; });
    for (size_t k = 0; k < Window::kStages; ++k) {
      compare([k](const OneStep& one) { return one.stages[k]; }, [k](Lists& l) -> auto& { return l.stages[k]; });
    }
    for (size_t r = 0; r < n; ++r) {
      lists[r].own.push_back(row[r].own);
      lists[r].collective.push_back(row[r].collective);
    }
  }
  found.step = Median(&durations);
  const Window::Step& last = *At(*ranks.front(), steps.back());
  if (!(window.NowOf(*ranks.front(), now) - last.t <= std::max(2 * kSpan, 3 * found.step))) return std::nullopt;
  for (size_t r = 0; r < n; ++r) {
    Compared::Rank& rank = found.ranks[r];
    const auto more = std::count_if(lists[r].excess.begin(), lists[r].excess.end(),
                                    [&](double excess) { return excess > found.step / 10; });
    rank.steady = static_cast<double>(more) / static_cast<double>(steps.size());
    for (const double excess : lists[r].excess) rank.worked += std::max(0.0, excess);
    rank.own = Median(&lists[r].own);
    rank.excess = Median(&lists[r].excess);
    rank.collective = Median(&lists[r].collective);
    rank.rest_excess = Median(&lists[r].rest);
    for (size_t k = 0; k < Window::kStages; ++k) rank.stage_excess[k] = Median(&lists[r].stages[k]);
  }
  return found;
}

void FindStragglers(const Window& window, const std::optional<Compared>& compared, double, Findings* out) {
  if (!compared || !compared->stages || compared->ranks.size() < 2) return;
  const auto slow = std::max_element(compared->ranks.begin(), compared->ranks.end(),
                                     [](const auto& a, const auto& b) { return a.excess < b.excess; });
  const double part = CpuIsFull(window) ? kPartWhenFull : kPart;
  if (slow->excess < std::max(kLeast, part * compared->step) || slow->steady < kSteady) return;
  // The others must really wait for it: else each goes at its own pace.
  std::vector<double> waits;
  for (const Compared::Rank& rank : compared->ranks) {
    if (rank.rank != slow->rank) waits.push_back(rank.collective);
  }
  const double wait = Median(&waits);
  if (wait - slow->collective < slow->excess / 2) return;
  Finding finding;
  finding.rule = "straggler";
  finding.rank = slow->rank;
  finding.node = window.ranks().at(slow->rank).node;
  finding.stage = StageOf(slow->stage_excess, slow->rest_excess);
  finding.text = fmt::format("rank {} is slow in {}: the others wait for it, {} of each {} step", slow->rank,
                             finding.stage, SecondsText(slow->excess), SecondsText(compared->step));
  finding.evidence = fmt::format(
      "steps {} to {}: rank {} works {} a step and waits {} in collectives, the others wait {}; more than the others "
      "in {:.0f} % of the steps",
      compared->first, compared->last, slow->rank, SecondsText(slow->own), SecondsText(slow->collective),
      SecondsText(wait), slow->steady * 100);
  out->push_back(std::move(finding));
}

// A rank that is slow in some of its steps only: when it saves, when its storage hangs, in every third one.
void FindRepeatedDelays(const Window& window, const std::optional<Compared>& compared, double, Findings* out) {
  if (!compared || !compared->stages || compared->ranks.size() < 2 || Has(*out, "straggler")) return;
  std::vector<const Window::Rank*> ranks;
  for (const Compared::Rank& rank : compared->ranks) ranks.push_back(&window.ranks().at(rank.rank));
  const std::vector<uint64_t> steps = CommonSteps(ranks, kLongSpan);
  if (steps.empty()) return;
  struct Delays {
    double seconds = 0, stages[Window::kStages] = {}, rest = 0;
    size_t count = 0;
  };
  std::vector<Delays> of(ranks.size());
  std::vector<OneStep> row(ranks.size());
  std::vector<double> values(ranks.size()), waits;
  const double least = std::max(kLeast, kPart * compared->step);
  double total = 0;
  for (const uint64_t number : steps) {
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Window::Step& step = *At(*ranks[r], number);
      row[r] = Read(step);
      values[r] = step.seconds;
    }
    total += Median(&values);
    for (size_t r = 0; r < ranks.size(); ++r) values[r] = row[r].own;
    const auto slow = static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
    const double excess = values[slow] - Others(values, slow);
    if (excess < least) continue;
    waits.clear();
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (r != slow) waits.push_back(row[r].collective);
    }
    if (Median(&waits) - row[slow].collective < excess / 2) continue;
    Delays& delays = of[slow];
    delays.seconds += excess;
    ++delays.count;
    const auto more = [&](auto&& value) {
      for (size_t r = 0; r < ranks.size(); ++r) values[r] = value(row[r]);
      return values[slow] - Others(values, slow);
    };
    delays.rest += more([](const OneStep& one) { return one.rest; });
    for (size_t k = 0; k < Window::kStages; ++k) {
      delays.stages[k] += more([k](const OneStep& one) { return one.stages[k]; });
    }
  }
  const auto worst = static_cast<size_t>(
      std::max_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; }) -
      of.begin());
  double second = 0;
  for (size_t r = 0; r < of.size(); ++r) {
    if (r != worst) second = std::max(second, of[r].seconds);
  }
  const Delays& delays = of[worst];
  const std::string stage = StageOf(delays.stages, delays.rest);
  if (total < kLeastTime || delays.count < (stage == "checkpoint" ? kLeastSaves : kLeastDelays)) return;
  if (delays.seconds < std::max((CpuIsFull(window) ? kPartWhenFull : kPart) * total, kAlone * second)) return;
  Finding finding;
  finding.rule = "straggler";
  finding.rank = compared->ranks[worst].rank;
  finding.node = ranks[worst]->node;
  finding.stage = stage;
  finding.text =
      fmt::format("rank {} is slow in {} in {} of {} steps: the others wait for it, {} of {}", *finding.rank,
                  finding.stage, delays.count, steps.size(), SecondsText(delays.seconds), SecondsText(total));
  finding.evidence = fmt::format(
      "steps {} to {}: in {} of them rank {} works {} longer than the others, who wait in collectives; nobody else "
      "does for more than {} in all",
      steps.front(), steps.back(), delays.count, *finding.rank,
      SecondsText(delays.seconds / static_cast<double>(delays.count)), SecondsText(second));
  out->push_back(std::move(finding));
}

// One long step for which one rank is to blame.
void FindPauses(const Window& window, const std::optional<Compared>& compared, double, Findings* out) {
  if (!compared || !compared->stages || compared->ranks.size() < 2 || Has(*out, "straggler")) return;
  std::vector<double> owns(compared->ranks.size()), waits;
  for (size_t i = compared->numbers.size(); i-- > 0;) {
    const uint64_t number = compared->numbers[i];
    std::vector<OneStep> row;
    for (const Compared::Rank& rank : compared->ranks) {
      const Window::Step* step = At(window.ranks().at(rank.rank), number);
      if (step == nullptr) break;
      row.push_back(Read(*step));
    }
    if (row.size() != compared->ranks.size()) continue;
    for (size_t r = 0; r < row.size(); ++r) owns[r] = row[r].own;
    const auto slow = static_cast<size_t>(std::max_element(owns.begin(), owns.end()) - owns.begin());
    const double excess = owns[slow] - Others(owns, slow);
    if (excess < std::max(kPauseAtLeast, kPauseSteps * compared->step)) continue;
    waits.clear();
    for (size_t r = 0; r < row.size(); ++r) {
      if (r != slow) waits.push_back(row[r].collective);
    }
    const double wait = Median(&waits);
    if (wait < 0.7 * excess) continue;
    size_t stage = Window::kStages;
    for (size_t k = 0; k < Window::kStages; ++k) {
      if (k != kCollective && row[slow].stages[k] > excess / 2) stage = k;
    }
    Finding finding;
    finding.rule = "pause";
    finding.rank = compared->ranks[slow].rank;
    finding.node = window.ranks().at(*finding.rank).node;
    finding.stage = stage == Window::kStages ? "compute" : std::string(record::kStageNames[stage]);
    finding.text =
        fmt::format("rank {} held up step {} for {} in {}", *finding.rank, number, SecondsText(excess), finding.stage);
    finding.evidence = fmt::format("it worked {} in that step, the others waited {} in collectives; a step takes {}",
                                   SecondsText(owns[slow]), SecondsText(wait), SecondsText(compared->step));
    out->push_back(std::move(finding));
    return;
  }
}

// Nobody works longer, all wait in collectives, and most of the wait is for one rank, which waits as well: its link.
void FindSlowLinks(const Window& window, const std::optional<Compared>& compared, double, Findings* out) {
  if (!compared || !compared->stages || compared->ranks.size() < 3 || Has(*out, "straggler")) return;
  // Slow messages keep the last one to come waiting, too. Where ranks wait for a CPU, it waits for nobody.
  if (compared->together < kPart * compared->seconds / static_cast<double>(compared->steps)) return;
  const double least = std::max(kLeast, kPart * compared->step);
  std::map<int, size_t> votes;
  std::map<int, double> waited;  // for it, seconds over all voters
  std::vector<double> waits;
  size_t voters = 0;
  for (const Compared::Rank& rank : compared->ranks) {
    waits.push_back(rank.collective);
    if (rank.collective < least) return;
    double all = 0;
    std::pair<int, double> most{-1, 0};
    for (const auto& [peer, seconds] : rank.waited_for) {
      all += seconds;
      waited[peer] += seconds;
      if (seconds > most.second) most = {peer, seconds};
    }
    if (most.first < 0) continue;
    ++voters;
    // Of each step the longest wait is known: it must be most of what this rank waited at all.
    if (most.second >= kBlamed * all &&
        most.second >= kBlamed / 2 * rank.mean_collective * static_cast<double>(compared->steps))
      ++votes[most.first];
  }
  const double wait = Median(&waits);
  for (const Compared::Rank& rank : compared->ranks) {
    // It cannot vote for itself.
    if (voters < 3 || votes[rank.rank] + 1 < voters || rank.collective < 0.4 * wait) continue;
    // They waited while it worked.
    if (rank.worked > 0.5 * waited[rank.rank] / static_cast<double>(voters - 1)) continue;
    Finding finding;
    finding.rule = "straggler";
    finding.rank = rank.rank;
    finding.node = window.ranks().at(rank.rank).node;
    finding.stage = "network";
    finding.text = fmt::format("rank {} is slow in the network: all ranks wait for its messages, {} of each {} step",
                               rank.rank, SecondsText(wait), SecondsText(compared->step));
    finding.evidence = fmt::format(
        "steps {} to {}: {} of {} other ranks wait for it most; it works no longer than they do ({} a step) and waits "
        "{} in collectives itself",
        compared->first, compared->last, votes[rank.rank], voters - 1, SecondsText(rank.own),
        SecondsText(rank.collective));
    out->push_back(std::move(finding));
    return;
  }
}

void FindBounds(const Window& window, const std::optional<Compared>& compared, double, Findings* out) {
  if (!compared || Has(*out, "straggler") || !(compared->step > 0)) return;
  const auto count = static_cast<double>(compared->steps);
  const double mean = compared->seconds / count;
  std::vector<double> data;
  for (const Compared::Rank& rank : compared->ranks) data.push_back(rank.data);
  const double typical = Median(&data);
  if (typical >= 0.3 * mean && typical >= kLeast) {
    Finding finding;
    finding.rule = "input-bound";
    finding.stage = "data";
    finding.text = fmt::format("input-bound: every rank waits for data, {} of each {} step ({:.0f} %)",
                               SecondsText(typical), SecondsText(mean), typical / mean * 100);
    finding.evidence = fmt::format("rank/time/data over steps {} to {}, median of {} ranks", compared->first,
                                   compared->last, compared->ranks.size());
    out->push_back(std::move(finding));
  }
  // Where the CPUs are full, waiting for others is waiting for a CPU.
  if (!compared->stages || compared->ranks.size() < 2 || CpuIsFull(window)) return;
  const double least_wait = compared->together;
  if (least_wait < 0.4 * mean || least_wait < kLeast) return;
  Finding finding;
  finding.rule = "communication-bound";
  finding.stage = "network";
  finding.text =
      fmt::format("communication-bound: every rank spends at least {} of each {} step in collectives ({:.0f} %)",
                  SecondsText(least_wait), SecondsText(mean), least_wait / mean * 100);
  finding.evidence = fmt::format("rank/time/collective over steps {} to {}, least of {} ranks", compared->first,
                                 compared->last, compared->ranks.size());
  out->push_back(std::move(finding));
}

}  // namespace lockstep::watch
