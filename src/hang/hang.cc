#include "hang/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::hang {
namespace {

std::string Ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  std::string out = "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    // Runs of neighbours are written as a range.
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (i > 0) out += ", ";
    out += last > i + 1 ? fmt::format("{}-{}", ranks[i], ranks[last]) : fmt::format("{}", ranks[i]);
    if (last > i + 1) i = last;
    if (out.size() > 60 && i + 1 < ranks.size()) return out + fmt::format(", ... ({} in all)", ranks.size());
  }
  return out;
}

std::string Plural(const std::string& words, size_t count) {
  if (count < 2) return words;
  static constexpr std::pair<std::string_view, std::string_view> kVerbs[] = {
      {"waits", "wait"},  {"is ", "are "}, {"has ", "have "}, {"hangs", "hang"}, {"reads or writes", "read or write"},
      {"sleeps", "sleep"}};
  for (const auto& [one, many] : kVerbs) {
    if (words.starts_with(one)) return std::string(many) + words.substr(one.size());
  }
  return words;
}

// Ranks at the same place, in order of their first rank.
struct Group {
  Where where;
  std::string operation, at;
  std::vector<int> ranks;
  const RankPosition* first = nullptr;
};

std::vector<Group> GroupUp(const std::vector<RankPosition>& places, bool by_line) {
  std::vector<Group> groups;
  for (const RankPosition& place : places) {
    auto it = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.where == place.where && group.operation == place.operation && (!by_line || group.at == place.at);
    });
    if (it == groups.end()) {
      groups.push_back({place.where, place.operation, place.at, {}, &place});
      it = groups.end() - 1;
    }
    it->ranks.push_back(place.rank);
  }
  return groups;
}

std::string Describe(const Group& group, bool named) {
  const std::string who =
      named || group.ranks.size() == 1 ? Ranks(group.ranks) : fmt::format("{} ranks", group.ranks.size());
  return fmt::format("{} {}{}", who, Plural(group.first->words, group.ranks.size()),
                     group.first->at.empty() ? "" : fmt::format(" at {}", group.first->at));
}

std::string Advice(Where where, const std::string& operation, bool together = false) {
  if (together && (where == Where::kSleep || where == Where::kCode)) {
    return "look at that line: it never ends, or takes longer than the limit (then give a longer one)";
  }
  if (operation == "child process" || operation == "process") {
    return "look at the process it waits for; give the call a timeout, and do such work on all ranks or before "
           "training";
  }
  if (operation.starts_with("event") || operation == "pipe" || operation == "terminal" || operation == "signal") {
    return fmt::format(
        "nobody gives it the {} it waits for at that line: look at who should, and give the call a timeout",
        operation.starts_with("event") ? "event"
        : operation == "signal"        ? "signal"
                                       : "input");
  }
  switch (where) {
    case Where::kGone:
      return "a rank left while the others still need it: every rank must make the same number of steps (uneven data: "
             "drop the rest, or join)";
    case Where::kStopped:
      return "continue it: kill -CONT <pid>; or end the debugger";
    case Where::kDisk:
      return "look at the disk or network file system it uses (dmesg on that machine); such a process cannot be killed";
    case Where::kDataLoader:
      return "look at the data that rank reads at that line, and at its workers and their disk; a timeout= in the "
             "DataLoader turns this into an error";
    case Where::kFile:
      return "look at the disk or network file system behind that file";
    case Where::kLock:
      return "a deadlock inside that rank: another thread or process of it holds what it waits for";
    case Where::kNetwork:
      return "it waits for a remote service: give the request a timeout, or fetch before training";
    case Where::kSleep:
    case Where::kCode:
      return "that rank runs code the others do not: no rank may do work of its own between collectives";
    case Where::kTeardown:
      return "its program is over, but its process group still has work that no other rank will join: wait() for every "
             "asynchronous collective, and call dist.destroy_process_group() on every rank as the last line";
    case Where::kDevice:
      return "the GPU of that rank does not finish: look for Xid errors (dmesg) and at nvidia-smi on that machine";
    default:
      return "";
  }
}

}  // namespace

HangVerdict JudgeHang(const std::vector<ProcessStacks>& ranks, const HangFacts& facts) {
  HangVerdict verdict;
  for (const ProcessStacks& process : ranks) verdict.places.push_back(Locate(process));
  for (const auto& [rank, how] : facts.ended) {
    auto it = std::find_if(verdict.places.begin(), verdict.places.end(),
                           [wanted = rank](const RankPosition& place) { return place.rank == wanted; });
    RankPosition place = it != verdict.places.end() ? *it : RankPosition{};
    place.rank = rank;
    place.where = Where::kGone;
    place.words = fmt::format("has ended ({})", how);
    if (it != verdict.places.end()) {
      *it = place;
    } else {
      verdict.places.push_back(place);
    }
  }
  std::sort(verdict.places.begin(), verdict.places.end(), [](const RankPosition& a, const RankPosition& b) {
    return a.rank < b.rank || (a.rank == b.rank && a.pid < b.pid);
  });
  for (RankPosition& place : verdict.places) {
    if (auto step = facts.steps.find(place.rank); step != facts.steps.end()) place.step = step->second;
  }
  if (verdict.places.empty()) {
    verdict.summary = "no rank could be examined";
    return verdict;
  }

  const std::vector<Group> groups = GroupUp(verdict.places, /*by_line=*/false);
  const auto say = [&](const std::vector<const Group*>& odd, double confidence) {
    std::vector<std::string> parts;
    for (const Group* group : odd) {
      parts.push_back(Describe(*group, true));
      verdict.odd.insert(verdict.odd.end(), group->ranks.begin(), group->ranks.end());
    }
    for (const Group& group : groups) {
      if (std::find(odd.begin(), odd.end(), &group) == odd.end())
        parts.push_back(Describe(group, group.ranks.size() < 3));
    }
    std::sort(verdict.odd.begin(), verdict.odd.end());
    verdict.summary = Join(parts, "; ");
    verdict.confidence = confidence;
    if (!odd.empty()) verdict.advice = Advice(odd.front()->where, odd.front()->operation, odd.size() == groups.size());
  };
  const auto pick = [&](auto&& wanted) {
    std::vector<const Group*> found;
    for (const Group& group : groups) {
      if (wanted(group)) found.push_back(&group);
    }
    return found;
  };
  const auto waiting = pick([](const Group& group) { return WaitsForOthers(group.where); });
  size_t waiters = 0;
  for (const Group* group : waiting) waiters += group->ranks.size();
  const bool one_rank = verdict.places.size() == 1;

  // What stops a rank from outside explains everything, whatever the others do; several at once are all to blame.
  for (const Where cause : {Where::kStopped, Where::kDisk}) {
    if (auto odd = pick([&](const Group& group) { return group.where == cause; }); !odd.empty()) {
      say(odd, 0.95);
      return verdict;
    }
  }
  if (auto gone = pick([](const Group& group) { return group.where == Where::kGone; }); !gone.empty() && waiters > 0) {
    say(gone, 0.9);
    return verdict;
  }
  if (const auto gone = pick([](const Group& group) { return group.where == Where::kGone; });
      !gone.empty() && gone.size() < groups.size()) {
    say(pick([](const Group& group) { return group.where != Where::kGone; }), 0.7);  // what is still there keeps it up
    return verdict;
  }
  if (one_rank) {
    say({&groups.front()}, groups.front().where == Where::kUnknown ? 0.2 : 0.7);
    return verdict;
  }
  // Some wait, some do not: those that do not are what is waited for.
  if (waiters > 0) {
    auto busy = pick([](const Group& group) { return !WaitsForOthers(group.where) && group.where != Where::kUnknown; });
    if (!busy.empty()) {
      say(busy, waiters >= verdict.places.size() - waiters ? 0.9 : 0.7);
      return verdict;
    }
    if (auto unknown = pick([](const Group& group) { return group.where == Where::kUnknown; }); !unknown.empty()) {
      say(unknown, 0.5);
      return verdict;
    }
  }
  // All wait. In different operations, or in the same one called from different lines: they no longer agree.
  const std::vector<Group> fine = GroupUp(verdict.places, /*by_line=*/true);
  if (waiters == verdict.places.size() && fine.size() > 1) {
    auto least = std::min_element(fine.begin(), fine.end(),
                                  [](const Group& a, const Group& b) { return a.ranks.size() < b.ranks.size(); });
    const bool tie = std::any_of(fine.begin(), fine.end(), [&](const Group& group) {
      return &group != &*least && group.ranks.size() == least->ranks.size();
    });
    std::vector<std::string> parts;
    if (!tie) {
      verdict.odd = least->ranks;
      parts.push_back(Describe(*least, true));
    }
    for (const Group& group : fine) {
      if (tie || &group != &*least) parts.push_back(Describe(group, tie || group.ranks.size() < 3));
    }
    verdict.summary = Join(parts, "; ");
    const bool all_receive =
        std::all_of(fine.begin(), fine.end(), [](const Group& g) { return g.operation == "recv"; });
    verdict.advice = all_receive
                         ? "all wait to receive and nobody sends: every recv needs the send of the other rank before it"
                         : "the ranks call different collectives: a branch that depends on the rank or on its data "
                           "must not hold one";
    verdict.confidence = tie ? 0.6 : 0.8;
  } else if (waiters == verdict.places.size()) {
    verdict.summary = fmt::format("all {} ranks {}{}", verdict.places.size(), Plural(groups.front().first->words, 2),
                                  groups.front().at.empty() ? "" : " at " + groups.front().at);
    verdict.advice =
        "all are in the same call: either the network between them is at fault, or a rank is one collective behind "
        "(`lockstep doctor preflight` checks the network; TORCH_DISTRIBUTED_DEBUG=DETAIL names a mismatch)";
    verdict.confidence = 0.4;
  } else {
    // Nobody waits for anybody: the smallest group is unlike the others, if there is one.
    auto least = std::min_element(groups.begin(), groups.end(),
                                  [](const Group& a, const Group& b) { return a.ranks.size() < b.ranks.size(); });
    const bool alike = std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
      return &group != &*least && group.ranks.size() == least->ranks.size();
    });
    if (groups.size() > 1 && !alike) {
      say({&*least}, 0.5);
    } else if (groups.size() == 1) {
      verdict.summary = fmt::format("all {} ranks {}{}", verdict.places.size(), Plural(groups.front().first->words, 2),
                                    groups.front().at.empty() ? "" : " at " + groups.front().at);
      verdict.advice = Advice(groups.front().where, groups.front().operation, true);
      verdict.confidence = 0.4;
    } else {
      say({}, 0.3);
    }
  }
  // A flight recorder knows which collective each rank started last: the lowest is behind.
  if (verdict.odd.empty() && !facts.collective.empty()) {
    std::map<std::string, std::vector<int>> by;
    for (const auto& [rank, last] : facts.collective) by[last].push_back(rank);
    if (by.size() > 1) {
      auto least = std::min_element(by.begin(), by.end(),
                                    [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
      verdict.odd = least->second;
      verdict.summary = fmt::format("{} started {} last, the others did not; {}", Ranks(least->second), least->first,
                                    verdict.summary);
      verdict.confidence = 0.8;
    }
  }
  // Failing all that: the rank whose step count is behind.
  if (verdict.odd.empty() && facts.steps.size() > 1 && facts.steps.size() == verdict.places.size()) {
    auto [low, high] = std::minmax_element(facts.steps.begin(), facts.steps.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
    if (low->second < high->second) {
      for (const auto& [rank, step] : facts.steps) {
        if (step == low->second) verdict.odd.push_back(rank);
      }
      verdict.summary = fmt::format("{} {} at step {}, others at {}; {}", Ranks(verdict.odd),
                                    verdict.odd.size() == 1 ? "is" : "are", low->second, high->second, verdict.summary);
      verdict.confidence = std::max(verdict.confidence, 0.5);
      if (verdict.odd.size() * 2 > verdict.places.size()) verdict.odd.clear();
    }
  }
  return verdict;
}

nlohmann::json HangVerdict::ToJson() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const RankPosition& place : places) {
    rows.push_back({{"rank", place.rank},
                    {"node", place.node},
                    {"host", place.host},
                    {"pid", place.pid},
                    {"where", Name(place.where)},
                    {"operation", place.operation},
                    {"words", place.words},
                    {"at", place.at},
                    {"step", place.step ? nlohmann::json(*place.step) : nlohmann::json()}});
  }
  return {{"summary", summary},       {"ranks", odd},       {"advice", advice},
          {"confidence", confidence}, {"healthy", healthy}, {"places", rows}};
}

HangVerdict HangVerdict::FromJson(const nlohmann::json& json) {
  HangVerdict verdict;
  if (!json.is_object()) return verdict;
  verdict.summary = GetString(json, "summary");
  verdict.advice = GetString(json, "advice");
  verdict.confidence = GetNumber(json, "confidence");
  verdict.healthy = json.value("healthy", nlohmann::json()) == true;
  for (const auto& rank : json.value("ranks", nlohmann::json::array())) {
    if (rank.is_number_integer()) verdict.odd.push_back(rank.get<int>());
  }
  for (const auto& row : json.value("places", nlohmann::json::array())) {
    if (!row.is_object()) continue;
    RankPosition place;
    place.rank = static_cast<int>(GetInt(row, "rank", -1));
    place.node = static_cast<int>(GetInt(row, "node", -1));
    place.host = GetString(row, "host");
    place.pid = GetInt(row, "pid");
    place.operation = GetString(row, "operation");
    place.words = GetString(row, "words");
    place.at = GetString(row, "at");
    const std::string where = GetString(row, "where");
    for (int i = 0; i <= static_cast<int>(Where::kCode); ++i) {
      if (where == Name(static_cast<Where>(i))) place.where = static_cast<Where>(i);
    }
    if (const auto step = row.find("step"); step != row.end() && step->is_number_unsigned()) place.step = *step;
    verdict.places.push_back(std::move(place));
  }
  return verdict;
}

std::string HangVerdict::Text() const {
  std::string text = summary;
  for (const Group& group : GroupUp(places, /*by_line=*/true)) {
    const RankPosition& first = *group.first;
    std::vector<std::string> pids;
    for (const RankPosition& place : places) {
      if (std::find(group.ranks.begin(), group.ranks.end(), place.rank) == group.ranks.end()) continue;
      if (pids.size() < 8 && place.pid > 0)  // 0: the rank is gone, or its node did not answer
        pids.push_back(fmt::format("{}{}", place.pid, place.host.empty() ? "" : " on " + place.host));
    }
    const std::string who = first.rank < 0 ? "process" : Ranks(group.ranks);
    text += fmt::format("\n  {}: {}{}{}{}", who, first.words, first.at.empty() ? "" : " at " + first.at,
                        first.step ? fmt::format(", step {}", *first.step) : "",
                        pids.empty() ? "" : fmt::format(" [pid {}]", Join(pids, ", ")));
  }
  if (!advice.empty()) text += "\n  do: " + advice;
  return text;
}

}  // namespace lockstep::hang
