#include "diagnose/sources.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "record/reader.h"

namespace lockstep::diagnose {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 20000;
constexpr int kDeepest = 8;

bool Exists(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none);
}

bool IsRunDir(const std::string& path) {
  for (const char* name : {"/events.jsonl", "/run.json", "/report.json"}) {
    if (Exists(path + name)) return true;
  }
  return !record::LogAttempts(path).empty();
}

// Files in a folder of logs that are none.
bool IsOtherData(std::string_view name) {
  static constexpr std::string_view kEnds[] = {".pt",  ".pth",  ".safetensors", ".bin",     ".npy",   ".npz", ".png",
                                               ".jpg", ".jpeg", ".mp4",         ".so",      ".pkl",   ".tar", ".whl",
                                               ".pyc", ".py",   ".sh",          ".parquet", ".arrow", ".h5",  ".ckpt",
                                               ".zip", ".yaml", ".yml",         ".md",      ".lock"};
  for (std::string_view end : kEnds) {
    if (name.ends_with(end)) return true;
  }
  return name.starts_with("events.out.tfevents") || name.starts_with(".");
}

struct Offsets {
  const std::map<std::string, double>& given;
  std::map<std::string, double> found;
  double For(const std::string& node) const {
    if (auto at = given.find(node); at != given.end()) return at->second;
    if (auto at = found.find(node); at != found.end()) return at->second;
    return 0;
  }
};

class Collector {
 public:
  explicit Collector(const DiagnoseOptions& options) : options_(options), offsets_{options.clock_offsets, {}} {}

  Status Add(const std::string& path) {
    if (path == "-") {
      LogSource source;
      source.path = "-";
      source.standard_input = true;
      out_.logs.push_back(std::move(source));
      return Status::Ok();
    }
    std::string real = path;
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) {
      const int error = errno;
      // "runs/latest" and the name of a run.
      const size_t slash = path.rfind('/');
      const std::string root = slash == std::string::npos ? "runs" : path.substr(0, slash);
      const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
      Result<std::string> run =
          error == ENOENT ? record::FindRun(root, name) : Result<std::string>(FileError("read", path, error));
      if (!run.ok()) {
        const Status missing = FileError("read", path, error);
        if (error != ENOENT || slash != std::string::npos || path.find('.') != std::string::npos) return missing;
        return Status(missing.code(),
                      fmt::format("'{}' is neither a file nor a run: {}", Printable(path), run.status().message()),
                      "give logs, a run directory, or a name of `lockstep runs`");
      }
      real = *run;
      if (stat(real.c_str(), &info) != 0) return FileError("read", real, errno);
    }
    if (!S_ISDIR(info.st_mode)) {
      AddFile(real, /*asked=*/true);
      return Status::Ok();
    }
    if (IsRunDir(real)) return AddRun(real);
    if (Result<std::vector<record::RunSummary>> runs = record::ListRuns(real);
        runs.ok() && !runs->empty() && IsRunDir(runs->front().path)) {
      out_.notes.push_back(runs->size() == 1 ? fmt::format("'{}' holds one run, '{}'", real, runs->front().name)
                                             : fmt::format("'{}' holds {} runs; read is the newest, '{}'", real,
                                                           runs->size(), runs->front().name));
      return AddRun(runs->front().path);
    }
    const size_t before = out_.logs.size();
    LOCKSTEP_RETURN_IF_ERROR(AddFolder(real, 0));
    if (out_.logs.size() == before) {
      return Status(Code::kEnvironment, fmt::format("no readable log file under '{}'", real),
                    "name the log files themselves, or the folder that holds them");
    }
    return Status::Ok();
  }

  SourceSet Take() { return std::move(out_); }

 private:
  void AddFile(const std::string& path, bool asked) {
    const PathOrigin origin = ReadPathOrigin(path);
    if (options_.attempt && origin.attempt >= 0 && origin.attempt != *options_.attempt) return;
    if (!asked && IsOtherData(path.substr(path.rfind('/') + 1))) return;
    LogSource source;
    source.path = path;
    source.rank = origin.rank;
    source.node = origin.node;
    source.clock_offset = offsets_.For(origin.node);
    out_.logs.push_back(std::move(source));
  }

  Status AddFolder(const std::string& path, int depth) {
    Result<std::vector<std::string>> names = ListDir(path);
    if (!names.ok()) {
      if (depth == 0) return names.status();
      out_.notes.push_back(names.status().message());
      return Status::Ok();
    }
    for (const std::string& name : *names) {
      if (out_.logs.size() >= kMostFiles) {
        if (!full_) out_.notes.push_back(fmt::format("more than {} files; the rest is not read", kMostFiles));
        full_ = true;
        break;
      }
      const std::string child = path + "/" + name;
      struct stat info{};
      if (stat(child.c_str(), &info) != 0) {
        out_.notes.push_back(FileError("read", child, errno).message());
      } else if (S_ISDIR(info.st_mode)) {
        if (depth < kDeepest && !name.starts_with(".")) LOCKSTEP_RETURN_IF_ERROR(AddFolder(child, depth + 1));
      } else if (S_ISREG(info.st_mode)) {
        AddFile(child, /*asked=*/false);
      }
    }
    return Status::Ok();
  }

  Status AddRun(const std::string& run) {
    const std::vector<int> attempts = record::LogAttempts(run);
    const JsonLines events = record::ReadEvents(run);
    int attempt = attempts.empty() ? 0 : attempts.back();
    for (const nlohmann::json& event : events.lines) {
      if (GetString(event, "type") == "rank_exited")
        attempt = std::max(attempt, static_cast<int>(GetInt(event, "attempt")));
    }
    const int last = attempt;
    if (options_.attempt) attempt = *options_.attempt;
    if (options_.attempt && std::find(attempts.begin(), attempts.end(), attempt) == attempts.end()) {
      return Status(Code::kUsage, fmt::format("'{}' has no attempt {}", run, attempt),
                    attempts.empty() ? "the run kept no logs"
                                     : fmt::format("it has attempts {} to {}", attempts.front(), attempts.back()));
    }
    LearnClocks(run, events);
    bool node_lost = false;
    for (const nlohmann::json& event : events.lines) {
      const std::string host = GetString(event, "host");
      const bool first = GetString(event, "type") == "run_started";
      if (!host.empty() && (first || event.contains("node"))) hosts_[static_cast<int>(GetInt(event, "node"))] = host;
      node_lost = node_lost || GetString(event, "type") == "node_lost";
    }
    if (const std::optional<nlohmann::json> about = record::ReadRunJson(run)) {
      out_.world = static_cast<int>(GetInt(*about, "world_size"));
    }
    if (attempt == last) {
      if (const std::optional<nlohmann::json> report = record::ReadReport(run)) {
        const std::string outcome = GetString(*report, "outcome");
        if (!outcome.empty()) out_.outcome = outcome;
        if (outcome == "stopped") {
          out_.notes.push_back("the launcher was asked to end this run: " +
                               Printable(GetString(*report, "reason"), 300));
        }
        if (const int world = static_cast<int>(GetInt(*report, "world_size")); world > 0) out_.world = world;
        // The launcher's own reason, where no rank is to blame.
        const std::string end = GetString(*report, "end");
        if ((end == "node_lost" && !node_lost) || end == "rendezvous_failed" || end == "stalled") {
          LogSource source;
          source.path = run + "/report.json";
          source.text = fmt::format("lockstep: {}: {}\n", end, GetString(*report, "reason"));
          out_.logs.push_back(std::move(source));
        }
      }
    }
    for (const nlohmann::json& event : events.lines) {
      const std::string type = GetString(event, "type");
      if (GetInt(event, "attempt", -1) != attempt) continue;
      if (type == "attempt_started") out_.world = static_cast<int>(GetInt(event, "world_size"));
      if (type == "rank_exited") {
        RankEnd end;
        end.rank = static_cast<int>(GetInt(event, "rank", -1));
        end.node = NodeName(static_cast<int>(GetInt(event, "node")));
        end.signal = static_cast<int>(GetInt(event, "signal"));
        if (event.contains("exit_code")) end.code = static_cast<int>(GetInt(event, "exit_code"));
        end.after_stop = GetBool(event, "after_stop");
        end.time = GetNumber(event, "t");
        out_.ends.push_back(std::move(end));
      }
      if (type == "node_lost") {
        LogSource source;
        source.path = run + "/events.jsonl";
        source.node = NodeName(static_cast<int>(GetInt(event, "node")));
        source.text = fmt::format("lockstep: lost node {}: {}\n", GetInt(event, "node"), GetString(event, "why"));
        out_.logs.push_back(std::move(source));
      }
    }
    for (const record::LogFile& log : record::LogFiles(run, attempt)) {
      for (const std::string& file : record::LogChain(log.path)) {
        LogSource source;
        source.path = file;
        source.rank = log.rank;
        source.node = NodeName(log.node);
        source.clock_offset = OffsetOf(log.node);
        out_.logs.push_back(std::move(source));
      }
      AddErrorFile(log);
    }
    if (out_.logs.empty() && out_.ends.empty())
      out_.notes.push_back(fmt::format("'{}' kept no logs of attempt {}", run, attempt));
    return Status::Ok();
  }

  // What torch's @record wrote about the rank's own exception.
  void AddErrorFile(const record::LogFile& log) {
    std::string path = log.path;
    if (!path.ends_with(".log")) return;
    path.replace(path.size() - 4, 4, ".error.json");
    if (!Exists(path)) return;
    Result<std::string> text = ReadFile(path, 4 << 20);
    if (!text.ok()) {
      out_.notes.push_back(text.status().message());
      return;
    }
    const nlohmann::json json = nlohmann::json::parse(*text, nullptr, false);
    std::string said;
    if (json.is_object() && json.contains("message")) {
      const nlohmann::json& message = json["message"];
      if (message.is_string()) {
        said = message.get<std::string>();
      } else if (message.is_object()) {
        if (auto extra = message.find("extraInfo"); extra != message.end()) said = GetString(*extra, "py_callstack");
        if (said.empty()) said = GetString(message, "message");
      }
    }
    if (said.empty()) return;
    LogSource source;
    source.path = path;
    source.rank = log.rank;
    source.node = NodeName(log.node);
    source.text = said + "\n";
    out_.logs.push_back(std::move(source));
  }

  // The host where the events name it, so that people find the machine.
  std::string NodeName(int node) const {
    auto host = hosts_.find(node);
    return host == hosts_.end() ? fmt::format("node-{}", node) : host->second;
  }
  double OffsetOf(int node) const {
    const double by_host = offsets_.For(NodeName(node));
    return by_host != 0 ? by_host : offsets_.For(fmt::format("node-{}", node));
  }

  // Both sides saw a rank start or end: the difference of their stamps is the difference of their clocks.
  void LearnClocks(const std::string& run, const JsonLines& events) {
    Result<std::vector<std::string>> names = ListDir(run + "/nodes");
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      Result<JsonLines> own = ReadJsonLines(run + "/nodes/" + name);
      if (!own.ok()) continue;
      std::vector<double> differences;
      for (const nlohmann::json& mine : own->lines) {
        for (const nlohmann::json& theirs : events.lines) {
          if (GetString(mine, "type") != GetString(theirs, "type") ||
              GetInt(mine, "pid", -1) != GetInt(theirs, "pid", -2) ||
              GetInt(mine, "rank", -1) != GetInt(theirs, "rank", -2) ||
              GetInt(mine, "attempt", -1) != GetInt(theirs, "attempt", -2)) {
            continue;
          }
          differences.push_back(GetNumber(theirs, "t") - GetNumber(mine, "t"));
        }
      }
      if (differences.empty()) continue;
      // The smallest holds the least of the message's own way.
      offsets_.found[name.substr(0, name.rfind('.'))] = *std::min_element(differences.begin(), differences.end());
    }
  }

  const DiagnoseOptions& options_;
  std::map<int, std::string> hosts_;
  Offsets offsets_;
  SourceSet out_;
  bool full_ = false;
};

}  // namespace

Result<SourceSet> FindSources(const std::vector<std::string>& paths, const DiagnoseOptions& options) {
  if (paths.empty())
    return Status(Code::kUsage, "no path given", "name a run directory, log files or folders, or - for standard input");
  Collector collector(options);
  for (const std::string& path : paths) LOCKSTEP_RETURN_IF_ERROR(collector.Add(path));
  return collector.Take();
}

}  // namespace lockstep::diagnose
