#include "diagnose/waiting.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace lockstep::diagnose {

namespace {

// A connection that was closed by a rank that had finished: it made fewer steps than the others.
bool NameWhoHadFinished(const Findings& findings, const LogFinding& cause, Diagnosis* out) {
  for (const RankEnd& end : findings.ends) {
    if (end.rank < 0 || end.rank == cause.rank || end.failed() || !end.code) continue;
    out->rank = end.rank;
    out->node = end.node;
    out->cause = fmt::format("rank {} had come to its end (exit code 0) while rank {} still needed it: {}", end.rank,
                             cause.rank, cause.cause);
    out->remedy = "every rank has to make the same number of steps: drop the rest of the data, or use join()";
    out->restart = Restart::kAfterFix;
    out->confidence = std::max(out->confidence, 0.6);
    return true;
  }
  return false;
}

// What a watchdog says of the collective it gave up.
struct Waited {
  const LogFinding* finding = nullptr;
  std::string group;  // "" where the line does not tell
  int64_t number = 0;
  std::string operation, elements;

  std::string Text() const { return elements.empty() ? operation : fmt::format("{} of {}", operation, elements); }
};

std::optional<Waited> ReadWatchdog(const LogFinding& finding) {
  static const RE2 words(
      R"((?:\[PG (?:ID )?([^\]]*?) Rank \d+\])?.*WorkNCCL\(SeqNum=(\d+), OpType=(\w+), NumelIn=(\d+))");
  Waited waited{.finding = &finding};
  std::string count;
  if (finding.id != "pt-wd-timeout" || finding.rank < 0 || finding.earlier ||
      !RE2::PartialMatch(finding.text, words, &waited.group, &waited.number, &waited.operation, &count)) {
    return std::nullopt;
  }
  // Between two ranks, with numbers of their own.
  if (waited.operation == "SEND" || waited.operation == "RECV" || waited.operation == "COALESCED") return std::nullopt;
  // In these, unequal sizes are an error; in others ranks may bring shares of any size.
  const bool equal = waited.operation == "ALLREDUCE" || waited.operation == "BROADCAST" || waited.operation == "REDUCE";
  if (equal) waited.elements = fmt::format("{} elements", count);
  return waited;
}

}  // namespace

void CompareCollectives(Findings* findings) {
  std::map<std::pair<std::string, int64_t>, std::map<int, Waited>> by_number;  // of a group; by rank
  std::map<uint32_t, uint64_t> first_line;                                     // of a watchdog, by source
  for (const LogFinding& finding : findings->all) {
    if (finding.id == "pt-wd-timeout") first_line.try_emplace(finding.source, finding.line);
    if (std::optional<Waited> waited = ReadWatchdog(finding)) {
      by_number[{waited->group, waited->number}].try_emplace(finding.rank, *waited);
    }
  }
  std::optional<LogFinding> made;
  for (const auto& [number, ranks] : by_number) {
    std::map<std::string, std::vector<int>> who;
    for (const auto& [rank, waited] : ranks) who[waited.Text()].push_back(rank);
    if (who.size() < 2 || made) continue;
    // The smallest party is the one to look at.
    const auto odd =
        std::min_element(who.begin(), who.end(), [](auto& a, auto& b) { return a.second.size() < b.second.size(); });
    made = *ranks.at(odd->second.front()).finding;
    made->id = "pt-coll-mismatch";
    made->role = Role::kRoot;
    made->policy = Policy::kStop;
    made->weight = 5;
    std::vector<std::string> parts;
    for (const auto& [text, on] : who) {
      parts.push_back(fmt::format("{} on rank{} {}", text, on.size() == 1 ? "" : "s", fmt::join(on, ", ")));
    }
    made->cause =
        fmt::format("ranks called different collectives: number {} is {}", number.second, fmt::join(parts, ", "));
    made->remedy = "make all ranks take the same path; the watchdog's stack trace in each rank's log shows the call";
  }
  for (LogFinding& finding : findings->all) {
    const auto said = first_line.find(finding.source);
    if (finding.id != "py-fatal-abort" || said == first_line.end() || said->second > finding.line) continue;
    finding.role = Role::kTrigger;
    finding.weight = 1;
  }
  if (made) findings->all.push_back(std::move(*made));
}

void NameTheMissing(const Findings& findings, const LogFinding& cause, Diagnosis* out) {
  if (cause.role == Role::kConsequence && cause.rank >= 0 && NameWhoHadFinished(findings, cause, out)) return;
  if (cause.id != "pt-wd-timeout" && cause.id != "pt-store-wait" && cause.id != "gloo-timeout" &&
      cause.id != "nccl-timeout" && cause.id != "hang")
    return;
  static const RE2 sequence(R"(SeqNum=(\d+), OpType=(\w+))");
  std::map<int, int64_t> reached;  // rank -> collective it waits in
  std::string operation;
  for (const LogFinding& finding : findings.all) {
    if (finding.id != cause.id || finding.rank < 0) continue;
    int64_t number = 0;
    RE2::PartialMatch(finding.text, sequence, &number, &operation);
    auto [at, fresh] = reached.try_emplace(finding.rank, number);
    if (!fresh) at->second = std::min(at->second, number);
  }
  int world = findings.world;
  std::set<int> known;
  for (const Stream& stream : findings.streams) known.insert(stream.rank);
  for (const RankEnd& end : findings.ends) known.insert(end.rank);
  known.erase(-1);
  if (world == 0 && !known.empty()) world = *known.rbegin() + 1;
  std::vector<int> missing;
  for (int rank = 0; rank < world; ++rank) {
    if (!reached.contains(rank)) missing.push_back(rank);
  }
  int behind = -1;
  if (reached.size() >= 2) {
    auto lowest =
        std::min_element(reached.begin(), reached.end(), [](auto& a, auto& b) { return a.second < b.second; });
    auto highest =
        std::max_element(reached.begin(), reached.end(), [](auto& a, auto& b) { return a.second < b.second; });
    const auto at_lowest =
        std::count_if(reached.begin(), reached.end(), [&](auto& a) { return a.second == lowest->second; });
    if (lowest->second < highest->second && at_lowest == 1) behind = lowest->first;
  }
  if (!reached.empty() &&
      (missing.size() == 1 || (!missing.empty() && missing.size() * 2 < static_cast<size_t>(world)))) {
    const std::string who = reached.size() == 1 ? "one rank reports" : fmt::format("{} ranks report", reached.size());
    out->rank = missing[0];
    out->node.clear();
    out->cause += missing.size() == 1 ? fmt::format("; {} it, rank {} does not: it never came", who, missing[0])
                                      : fmt::format("; {} it, ranks {} do not", who, fmt::join(missing, ", "));
    out->confidence = std::max(out->confidence, 0.6);
  } else if (behind >= 0) {
    out->rank = behind;
    out->node.clear();
    out->cause += fmt::format("; rank {} is behind the others (collective {})", behind, reached[behind]);
    out->confidence = std::max(out->confidence, 0.6);
  } else if (!reached.empty()) {
    // Who waited is never the one that did not come.
    out->rank = -1;
    out->node.clear();
  }
}

}  // namespace lockstep::diagnose
