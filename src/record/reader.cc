#include "record/reader.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/clock.h"
#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"
#include "record/run_dir.h"

namespace lockstep::record {
namespace {

constexpr std::string_view kEnded = "it ended ";  // as the reason of a lost run begins

using nlohmann::json;

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

bool IsDir(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The number in "<prefix><number><suffix>", or nothing.
std::optional<int> Numbered(std::string_view text, std::string_view prefix, std::string_view suffix = "") {
  if (text.size() <= prefix.size() + suffix.size()) return std::nullopt;
  if (text.substr(0, prefix.size()) != prefix || text.substr(text.size() - suffix.size()) != suffix)
    return std::nullopt;
  std::string_view digits = text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
  return ParseDigits(digits);
}

std::optional<json> ReadObject(const std::string& path) {
  Result<json> value = ReadJsonFile(path);
  if (!value.ok() || !value->is_object()) return std::nullopt;
  return *value;
}

int Count(const json& object, std::string_view key) {
  return static_cast<int>(std::clamp<int64_t>(GetInt(object, key), 0, INT32_MAX));
}

bool IsRun(const std::string& path) {
  for (const char* entry : {"/run.json", "/events.jsonl", "/lock", "/report.json", "/nodes", "/logs"}) {
    if (Exists(path + entry)) return true;
  }
  return false;
}

}  // namespace

const char* ToString(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kSucceeded:
      return "succeeded";
    case RunState::kFailed:
      return "failed";
    case RunState::kStopped:
      return "stopped";
    case RunState::kLost:
      return "lost";
    case RunState::kNodeOnly:
      return "node-only";
  }
  return "unknown";
}

json RunSummary::ToJson() const {
  return {{"name", name},
          {"path", path},
          {"state", record::ToString(state)},
          {"started", started > 0 ? json(started) : json()},
          {"duration", duration},
          {"nnodes", nnodes > 0 ? json(nnodes) : json()},
          {"world_size", world > 0 ? json(world) : json()},
          {"attempts", attempts},
          {"exit_code", exit_code ? json(*exit_code) : json()},
          {"reason", reason},
          {"launcher", launcher ? launcher->ToJson() : json()}};
}

std::string RunSummary::HowItEnded() const {
  if (state == RunState::kLost) return reason.substr(reason.starts_with(kEnded) ? kEnded.size() : 0);
  const std::string word = record::ToString(state);
  // Most reasons say the word themselves: "rank 1 on node 0 (gpu-0) failed first: exit code 1".
  if (reason.find(word) != std::string::npos) return reason;
  return reason.empty() ? word : fmt::format("{}: {}", word, reason);
}

std::optional<json> ReadReport(const std::string& run_path) { return ReadObject(run_path + "/report.json"); }

std::optional<json> ReadRunJson(const std::string& run_path) { return ReadObject(run_path + "/run.json"); }

JsonLines ReadEvents(const std::string& run_path) {
  Result<JsonLines> lines = ReadJsonLines(run_path + "/events.jsonl");
  return lines.ok() ? *lines : JsonLines{};
}

RunSummary Summarise(const std::string& run_path) {
  RunSummary run;
  run.path = run_path;
  run.name = std::filesystem::path(run_path).filename().string();
  LockView lock = ReadLock(run_path + "/lock");
  json about = ReadRunJson(run_path).value_or(json::object());
  JsonLines events = ReadEvents(run_path);
  // Read after the lock: a launcher publishes its report before it lets go.
  std::optional<json> report = ReadReport(run_path);

  run.started = GetNumber(about, "started");
  run.nnodes = Count(about, "nnodes");
  run.world = Count(about, "world_size");
  double last_event = 0;
  int highest = -1;
  for (const json& event : events.lines) {
    double t = GetNumber(event, "t");
    if (run.started == 0) run.started = t;
    last_event = std::max(last_event, t);
    highest = std::max(highest, static_cast<int>(std::clamp<int64_t>(GetInt(event, "attempt", -1), -1, INT32_MAX - 1)));
    if (run.nnodes == 0) run.nnodes = Count(event, "nnodes");
    if (run.world == 0) run.world = Count(event, "world_size");
  }
  std::vector<int> attempts = LogAttempts(run_path);
  if (!attempts.empty()) highest = std::max(highest, attempts.back());
  run.attempts = highest + 1;

  if (lock.state == LockState::kLive) {
    run.state = RunState::kRunning;
    run.launcher = lock.owner;
    if (run.started == 0 && lock.owner) run.started = lock.owner->since;
    if (run.started > 0) run.duration = std::max(0.0, UnixSeconds() - run.started);
    return run;
  }
  if (report) {
    std::string outcome = GetString(*report, "outcome");
    int code = static_cast<int>(GetInt(*report, "exit_code", outcome == "succeeded" ? 0 : 1));
    run.state = outcome == "succeeded" ? RunState::kSucceeded
                : outcome == "stopped" ? RunState::kStopped
                : outcome == "failed"  ? RunState::kFailed
                : code == 0            ? RunState::kSucceeded
                                       : RunState::kFailed;
    run.exit_code = code;
    run.reason = GetString(*report, "reason");
    run.started = GetNumber(*report, "started", run.started);
    double ended = GetNumber(*report, "ended", last_event);
    if (run.started > 0) run.duration = std::max(0.0, ended - run.started);
    if (Count(*report, "nnodes") > 0) run.nnodes = Count(*report, "nnodes");
    if (Count(*report, "world_size") > 0) run.world = Count(*report, "world_size");
    return run;
  }
  bool recorded = !about.empty() || !events.lines.empty() || lock.state == LockState::kStale;
  run.state = recorded ? RunState::kLost : RunState::kNodeOnly;
  run.launcher = lock.owner;
  if (lock.state == LockState::kStale) {
    run.reason = fmt::format("{}without a report: {}", kEnded, lock.why);
    last_event = std::max(last_event, lock.heartbeat);
  } else if (recorded) {
    run.reason = fmt::format("{}without a report", kEnded);
  } else {
    run.reason = "the record of this run is on node 0";
  }
  if (run.started > 0) run.duration = std::max(0.0, last_event - run.started);
  return run;
}

Result<std::vector<RunSummary>> ListRuns(const std::string& root) {
  std::vector<RunSummary> runs;
  if (!Exists(root)) return runs;
  Result<std::vector<std::string>> names = ListDir(root);
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    std::string path = fmt::format("{}/{}", root, name);
    if (name.front() != '.' && IsDir(path) && IsRun(path)) runs.push_back(Summarise(path));
  }
  std::sort(runs.begin(), runs.end(), [](const RunSummary& a, const RunSummary& b) {
    return a.started != b.started ? a.started > b.started : a.name < b.name;
  });
  return runs;
}

std::string RunsRoot() {
  const char* run = std::getenv("LOCKSTEP_RUN_DIR");
  if (run == nullptr || *run == '\0') return kDefaultRoot;
  return std::filesystem::path(run).parent_path().string();
}

Result<std::string> FindRun(const std::string& root, const std::string& which) {
  if (which.empty()) return Status(Code::kUsage, "expected the name of a run, found nothing", "see `lockstep runs`");
  if (which.find('/') != std::string::npos) {
    std::string path = which;
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    if (IsDir(path) && IsRun(path)) return path;
    const size_t slash = path.rfind('/');
    if (path.substr(slash + 1) == "latest" && !Exists(path)) return FindRun(path.substr(0, slash), "latest");
    return Status(Code::kUsage, fmt::format("'{}' is not a run directory", Printable(which)), "see `lockstep runs`");
  }
  Result<std::vector<std::string>> names = Exists(root) ? ListDir(root) : std::vector<std::string>{};
  if (!names.ok()) return names.status();
  std::vector<std::string> runs;
  for (const std::string& name : *names) {
    if (name.front() != '.' && IsRun(fmt::format("{}/{}", root, name))) runs.push_back(name);
  }
  if (runs.empty()) {
    return Status(Code::kUsage, fmt::format("there are no runs under '{}'", root),
                  "say where they are with --root, or start one with `lockstep run`");
  }
  if (which == "latest") {
    Result<std::vector<RunSummary>> all = ListRuns(root);
    if (!all.ok()) return all.status();
    return all->front().path;
  }
  std::vector<std::string> matches;
  for (const std::string& name : runs) {
    if (name == which) return fmt::format("{}/{}", root, name);
    if (name.compare(0, which.size(), which) == 0) matches.push_back(name);
  }
  if (matches.size() == 1) return fmt::format("{}/{}", root, matches.front());
  if (matches.size() > 1) {
    size_t shown = std::min<size_t>(matches.size(), 5);
    std::string more = matches.size() > shown ? fmt::format(" and {} more", matches.size() - shown) : "";
    return Status(Code::kUsage,
                  fmt::format("'{}' fits {} runs: {}{}", Printable(which), matches.size(),
                              Join({matches.begin(), matches.begin() + static_cast<long>(shown)}, ", "), more),
                  "write more of the name");
  }
  return Status(Code::kUsage,
                fmt::format("no run under '{}' is named '{}'{}", root, Printable(which), DidYouMean(which, runs)),
                "see `lockstep runs`");
}

std::vector<int> LogAttempts(const std::string& run_path) {
  std::vector<int> attempts;
  Result<std::vector<std::string>> names = ListDir(run_path + "/logs");
  if (!names.ok()) return attempts;
  for (const std::string& name : *names) {
    if (std::optional<int> attempt = Numbered(name, "attempt-")) attempts.push_back(*attempt);
  }
  std::sort(attempts.begin(), attempts.end());
  return attempts;
}

std::vector<LogFile> LogFiles(const std::string& run_path, int attempt) {
  std::vector<LogFile> files;
  std::string dir = fmt::format("{}/logs/attempt-{}", run_path, attempt);
  Result<std::vector<std::string>> nodes = ListDir(dir);
  if (!nodes.ok()) return files;
  for (const std::string& node_name : *nodes) {
    std::optional<int> node = Numbered(node_name, "node-");
    Result<std::vector<std::string>> names =
        node ? ListDir(fmt::format("{}/{}", dir, node_name)) : std::vector<std::string>{};
    if (!names.ok()) continue;
    for (const std::string& name : *names) {
      std::optional<int> rank = Numbered(name, "rank-", ".log");
      if (rank) files.push_back({attempt, *node, *rank, fmt::format("{}/{}/{}", dir, node_name, name)});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const LogFile& a, const LogFile& b) { return std::pair(a.node, a.rank) < std::pair(b.node, b.rank); });
  return files;
}

std::vector<std::string> LogChain(const std::string& log_path) {
  std::vector<std::string> chain;
  for (int i = 1; Exists(fmt::format("{}.{}", log_path, i)); ++i) chain.push_back(fmt::format("{}.{}", log_path, i));
  std::reverse(chain.begin(), chain.end());
  if (Exists(log_path)) chain.push_back(log_path);
  return chain;
}

}  // namespace lockstep::record
