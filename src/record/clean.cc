#include "record/clean.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "base/units.h"
#include "record/lock.h"
#include "record/metrics.h"

namespace lockstep::record {
namespace {

constexpr char kSetAside[] = ".removing-";

bool IsLink(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

// Bytes on disk of a tree. Links are not followed; a file with several names counts once.
uint64_t TreeBytes(const std::string& path, std::set<std::pair<dev_t, ino_t>>* seen) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return 0;
  uint64_t bytes = 0;
  if (info.st_nlink <= 1 || S_ISDIR(info.st_mode) || seen->emplace(info.st_dev, info.st_ino).second) {
    bytes = static_cast<uint64_t>(info.st_blocks) * 512;
  }
  if (!S_ISDIR(info.st_mode)) return bytes;
  const Result<std::vector<std::string>> names = ListDir(path);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) bytes += TreeBytes(path + "/" + (*names)[i], seen);
  return bytes;
}

std::optional<double> BestOf(const std::string& path, const CleanRules& rules) {
  std::optional<double> best;
  MetricFollower lines(path + "/metrics/rank-0.jsonl");
  const auto take = [&](const MetricLine& line) {
    const std::optional<double> value = line.Find(rules.metric);
    if (!value || !std::isfinite(*value)) return;
    if (!best || (rules.highest ? *value > *best : *value < *best)) best = value;
  };
  while (lines.Read(take)) {
  }
  return best;
}

// Why a run stays whatever the rules say; empty: it may go.
std::string Protected(const RunSummary& run) {
  if (run.state == RunState::kRunning) return "it runs";
  if (const std::string about = run.path + "/run.json"; ::access(about.c_str(), F_OK) == 0 && !ReadRunJson(run.path)) {
    return "its run.json cannot be read: remove it by hand if it is a run";
  }
  if (run.state == RunState::kNodeOnly) return "a part of a run whose record is on another node";
  if (IsLink(run.path)) return "a link";
  const std::optional<nlohmann::json> about = ReadRunJson(run.path);
  if (!about) return "it has no run.json: it may be no run";
  if (!about->contains("format")) return "its run.json is of another program: it may be no run";
  return "";
}

// Seconds since 1970. Where nothing in the run says when it was: its run.json was written then or before.
double EndOf(const RunSummary& run) {
  if (run.started > 0) return run.started + run.duration;
  struct stat info{};
  return ::stat((run.path + "/run.json").c_str(), &info) == 0 ? static_cast<double>(info.st_mtim.tv_sec)
                                                              : UnixSeconds();
}

// Why it matches; empty: it does not.
std::string Matches(const CleanEntry& entry, const CleanRules& rules, double now) {
  std::vector<std::string> reasons;
  if (rules.older_than) {
    const double age = now - entry.ended;
    if (!(age > std::chrono::duration<double>(*rules.older_than).count())) return "";
    reasons.push_back(fmt::format(
        "ended {} ago", FormatDuration(std::chrono::milliseconds(static_cast<int64_t>(std::min(age, 1e10) * 1e3)))));
  }
  if (rules.larger_than) {
    if (entry.bytes <= *rules.larger_than) return "";
    reasons.push_back("larger than " + FormatSize(*rules.larger_than));
  }
  if (!rules.states.empty()) {
    const std::string state = ToString(entry.run.state);
    if (std::find(rules.states.begin(), rules.states.end(), state) == rules.states.end()) return "";
    reasons.push_back(state);
  }
  return Join(reasons, ", ");
}

// Links and parts of other runs take nobody's place among the newest and the best.
bool Counts(const CleanEntry& entry) { return entry.why.empty() || entry.run.state == RunState::kRunning; }

void KeepBest(const CleanRules& rules, std::vector<CleanEntry>* entries) {
  std::vector<CleanEntry*> scored;
  for (CleanEntry& entry : *entries) {
    if (Protected(entry.run).empty() || entry.run.state == RunState::kRunning)
      entry.best = BestOf(entry.run.path, rules);
    if (entry.best) scored.push_back(&entry);
  }
  // Of equal ones the earlier entry comes first.
  std::ranges::sort(scored, {}, [&](const CleanEntry* entry) {
    return std::pair(rules.highest ? -*entry->best : *entry->best, entry);
  });
  for (size_t i = 0; i < scored.size() && i < rules.keep_best; ++i) {
    if (scored[i]->why.empty())
      scored[i]->why = fmt::format("among the best: {} {:.6g}", rules.metric, *scored[i]->best);
  }
}

}  // namespace

Result<std::vector<CleanEntry>> PlanClean(const std::string& root, const CleanRules& rules, double now) {
  const Result<std::vector<RunSummary>> runs = ListRuns(root);
  if (!runs.ok()) return runs.status();
  std::vector<CleanEntry> entries;
  for (const RunSummary& run : *runs) {
    CleanEntry entry;
    entry.run = run;
    entry.ended = EndOf(run);
    std::set<std::pair<dev_t, ino_t>> seen;
    entry.bytes = TreeBytes(run.path, &seen);
    entry.why = Protected(run);
    entries.push_back(std::move(entry));
  }
  uint64_t newest = 0;
  for (CleanEntry& entry : entries) {
    if (!Counts(entry) || newest++ >= rules.keep_last) continue;
    if (entry.why.empty()) entry.why = "among the newest";
  }
  if (rules.keep_best > 0) {
    KeepBest(rules, &entries);
    if (!entries.empty() && std::none_of(entries.begin(), entries.end(), [](const auto& e) { return e.best; })) {
      return Status(Code::kUsage, fmt::format("--keep-best: no run has the metric '{}'", Printable(rules.metric)),
                    "name one of the metric lines with --metric: val/loss, loss");
    }
  }
  const bool chooses = rules.older_than || rules.larger_than || !rules.states.empty();
  uint64_t left = 0;
  for (CleanEntry& entry : entries) {
    if (chooses && entry.why.empty()) {
      entry.why = Matches(entry, rules, now);
      entry.goes = !entry.why.empty();
    }
    if (!entry.goes) left += entry.bytes;
  }
  for (auto entry = entries.rbegin(); rules.total && entry != entries.rend() && left > *rules.total; ++entry) {
    if (entry->goes || !entry->why.empty()) continue;
    entry->goes = true;
    entry->why = fmt::format("all together have more than {}", FormatSize(*rules.total));
    left -= entry->bytes;
  }
  for (CleanEntry& entry : entries) {
    if (entry.why.empty()) entry.why = "the rules do not match";
  }
  return entries;
}

Status RemoveRun(const std::string& path) {
  if (IsLink(path)) return Status(Code::kUsage, fmt::format("'{}' is a link", path));
  Result<RunLock> lock = RunLock::Acquire(path + "/lock");
  if (!lock.ok()) return lock.status();
  // Under another name it is no run any more, also where this process is killed now.
  const size_t slash = path.rfind('/');
  const std::string root = slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string aside = fmt::format("{}/{}{}-{}", root, kSetAside, path.substr(slash + 1), ::getpid());
  if (::rename(path.c_str(), aside.c_str()) != 0) return FileError("rename", path, errno);
  return RemoveAll(aside);
}

Status RemoveLeftovers(const std::string& root) {
  const Result<std::vector<std::string>> names = ListDir(root);
  Status done;
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    if (!(*names)[i].starts_with(kSetAside)) continue;
    if (Status removed = RemoveAll(root + "/" + (*names)[i]); !removed.ok()) done = removed;
  }
  return done;
}

}  // namespace lockstep::record
