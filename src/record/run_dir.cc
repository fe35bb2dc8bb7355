#include "record/run_dir.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "record/reader.h"
#include "record/samples.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

// What a run directory may hold. A folder with none of these is somebody else's.
constexpr std::array<std::string_view, 12> kEntries = {"lock",        "run.json",    "config.yaml", "events.jsonl",
                                                       "report.json", "nodes",       "logs",        "metrics",
                                                       "checkpoints", "tensorboard", "wandb",       "telemetry"};

// Of these, what a launcher writes itself.
constexpr std::array<std::string_view, 9> kOfLauncher = {
    "lock", "run.json", "config.yaml", "events.jsonl", "report.json", "nodes", "logs", "metrics", "telemetry"};

// Whether a run directory holds more than a launcher writes before its ranks have started.
bool HoldsWork(const std::string& path) {
  const Result<std::vector<std::string>> names = ListDir(path);
  if (!names.ok()) return true;
  for (const std::string& name : *names) {
    if (std::find(kOfLauncher.begin(), kOfLauncher.end(), name) == kOfLauncher.end()) return true;
  }
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(path + "/metrics", none)) {
    if (!entry.is_regular_file(none) || entry.file_size(none) > 0) return true;
  }
  return false;
}

std::map<std::string, uintmax_t> FileSizes(const std::string& folder) {
  std::map<std::string, uintmax_t> sizes;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (entry.is_regular_file(none)) sizes[entry.path().string()] = entry.file_size(none);
  }
  return sizes;
}

Status CheckIsRun(const std::string& path) {
  Result<std::vector<std::string>> names = ListDir(path);
  if (!names.ok()) return names.status();
  if (names->empty()) return Status::Ok();
  for (const std::string& name : *names) {
    for (std::string_view entry : kEntries) {
      if (name == entry) return Status::Ok();
    }
  }
  return Status(
      Code::kUsage,
      fmt::format("'{}' exists and is not a run: it holds '{}' and nothing a run writes", path, names->front()),
      "give this run another --name or another root folder");
}

int HighestAttempt(const std::string& path) {
  int highest = -1;
  std::vector<int> attempts = LogAttempts(path);
  if (!attempts.empty()) highest = attempts.back();
  for (const json& event : ReadEvents(path).lines) {
    highest = std::max(highest, static_cast<int>(std::min<int64_t>(GetInt(event, "attempt", -1), 1 << 30)));
  }
  return highest;
}

// Where a folder cannot be made, run directories have to lie elsewhere.
Status MakeFolder(const std::string& path) {
  const Status made = MakeDirs(path).Context("run directory");
  const std::string separator = made.hint().empty() ? "" : "; ";
  return made.WithHint(made.hint() + separator + "--log-dir puts the run directories into another folder");
}

}  // namespace

Status CheckRunName(std::string_view name) {
  auto bad = [&](std::string_view why) {
    return Status(Code::kUsage, fmt::format("'{}' cannot name a run: {}", Printable(name), why),
                  "use letters, digits, '.', '_' and '-', at most 128 bytes");
  };
  if (name.empty()) return bad("it is empty");
  if (name.size() > 128) return bad(fmt::format("{} bytes are more than 128", name.size()));
  if (name.find('/') != std::string_view::npos) return bad("it holds a '/'");
  if (name.front() == '.') return bad("it begins with a '.'");
  if (name.front() == '-') return bad("it begins with a '-'");
  if (name.front() == ' ' || name.back() == ' ') return bad("it begins or ends with a space");
  if (name == "latest") return bad("'latest' means the newest run");
  for (char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return bad("it holds a control character");
  }
  return Status::Ok();
}

std::string DefaultName(std::string_view program) {
  std::string stem = std::filesystem::path(program).stem().string();
  for (char& c : stem) {
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
    if (!plain) c = '-';
  }
  while (!stem.empty() && (stem.front() == '-' || stem.front() == '.')) stem.erase(0, 1);
  if (stem.size() > 64) stem.resize(64);
  if (stem.empty()) stem = "run";
  time_t now = std::time(nullptr);
  tm local{};
  ::localtime_r(&now, &local);
  char stamp[32] = {};
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  uint16_t salt = 0;
  if (::getrandom(&salt, sizeof salt, GRND_NONBLOCK) != sizeof salt) {
    salt = static_cast<uint16_t>(std::chrono::steady_clock::now().time_since_epoch().count() ^ ::getpid());
  }
  return fmt::format("{}-{}-{:04x}", stem, stamp, salt);
}

Result<RunDir> RunDir::Create(const std::string& root, const std::string& name, bool authority, int node) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRunName(name));
  RunDir run;
  run.identity_.name = name;
  run.identity_.root = root.empty() ? kDefaultRoot : root;
  run.identity_.authority = authority;
  run.identity_.node = node;
  run.started_ = run.created_ = UnixSeconds();
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(run.identity_.root, error);
  if (error) return FileError("find folder", run.identity_.root, error.value());
  run.identity_.path = (absolute.lexically_normal() / name).string();
  Status prepared = run.Prepare();
  if (!prepared.ok()) return prepared;
  return run;
}

Status RunDir::Prepare() {
  const std::string& dir = identity_.path;
  const bool existed = ::access(dir.c_str(), F_OK) == 0;
  found_.run = existed;
  found_.root = existed || ::access(std::filesystem::path(dir).parent_path().c_str(), F_OK) == 0;
  LOCKSTEP_RETURN_IF_ERROR(MakeFolder(dir));
  if (existed) LOCKSTEP_RETURN_IF_ERROR(CheckIsRun(dir));

  if (identity_.authority) {
    Result<RunLock> lock = RunLock::Acquire(dir + "/lock");
    if (!lock.ok()) {
      if (!existed) ::rmdir(dir.c_str());
      return lock.status().Context(fmt::format("run '{}'", identity_.name));
    }
    lock_ = std::move(*lock);
  }

  int highest = existed ? HighestAttempt(dir) : -1;
  identity_.first_attempt = highest + 1;
  LOCKSTEP_RETURN_IF_ERROR(MakeFolder(dir + "/metrics"));
  LOCKSTEP_RETURN_IF_ERROR(MakeFolder(dir + "/logs"));
  if (!identity_.authority) {
    LOCKSTEP_RETURN_IF_ERROR(MakeFolder(dir + "/nodes"));
    return OpenEvents();
  }

  if (existed) {
    if (Result<std::string> text = ReadFile(dir + "/run.json"); text.ok()) found_.run_json = *std::move(text);
    if (Result<std::string> text = ReadFile(ConfigPath()); text.ok()) found_.config = *std::move(text);
    found_.samples = FileSizes(TelemetryDir(dir));
    std::optional<json> old = ReadRunJson(dir);
    if (old) created_ = GetNumber(*old, "created", created_);
    // A launch that dies without a report must not be taken for the earlier one's success.
    std::string report = dir + "/report.json";
    if (::access(report.c_str(), F_OK) == 0) {
      std::string kept = fmt::format("{}/report-attempt-{}.json", dir, std::max(0, highest));
      if (::rename(report.c_str(), kept.c_str()) != 0) return FileError("move", report, errno);
      found_.report = kept;
    }
    if (highest >= 0) {
      notices_.push_back(fmt::format("run '{}' exists: continuing it with attempt {}", identity_.name, highest + 1));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(OpenEvents());
  if (!lock_.has_flock()) {
    notices_.push_back(
        fmt::format("'{}' is on a file system without flock: two launches in the same instant could both "
                    "get this name",
                    dir));
  }
  if (lock_.taken_over()) {
    const LockView& stale = *lock_.taken_over();
    notices_.push_back(fmt::format("took over the stale lock of {}: {}",
                                   stale.owner ? stale.owner->ToString() : "an unknown process", stale.why));
    AppendEvent("lock_taken_over", {{"previous", stale.owner ? stale.owner->ToJson() : json()}, {"why", stale.why}});
  }
  return Status::Ok();
}

std::string RunDir::EventsPath() const {
  return identity_.authority ? identity_.path + "/events.jsonl"
                             : fmt::format("{}/nodes/node-{}.jsonl", identity_.path, identity_.node);
}

Status RunDir::OpenEvents() {
  const std::string file = EventsPath();
  struct stat before{};
  if (::stat(file.c_str(), &before) == 0) found_.events = before.st_size;
  events_.reset(::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!events_) return FileError("open", file, errno).Context("run directory");
  struct stat info{};
  char last = '\n';
  if (::fstat(events_.get(), &info) == 0 && info.st_size > 0 &&
      ::pread(events_.get(), &last, 1, info.st_size - 1) == 1) {
    mid_line_ = last != '\n';
  }
  return Status::Ok();
}

std::string RunDir::LogDir(int attempt, int node) const {
  return fmt::format("{}/logs/attempt-{}/node-{}", identity_.path, attempt, node);
}

std::string RunDir::LogPath(int attempt, int node, int rank) const {
  return fmt::format("{}/rank-{}.log", LogDir(attempt, node), rank);
}

std::string RunDir::ErrorFilePath(int attempt, int node, int rank) const {
  return fmt::format("{}/rank-{}.error.json", LogDir(attempt, node), rank);
}

std::string RunDir::MetricsPath(int rank) const {
  return fmt::format("{}/metrics/rank-{}.jsonl", identity_.path, rank);
}

Status RunDir::MakeAttemptDirs(int attempt, int node) const {
  return MakeDirs(LogDir(attempt, node)).Context("log directory");
}

Status RunDir::RequireAuthority(std::string_view what) const {
  if (identity_.authority) return Status::Ok();
  return Status(Code::kInternal, fmt::format("node {} must not write {}: node 0 does", identity_.node, what));
}

Status RunDir::WriteRunJson(json fields) {
  LOCKSTEP_RETURN_IF_ERROR(RequireAuthority("run.json"));
  fields["format"] = 1;
  fields["name"] = identity_.name;
  fields["created"] = created_;
  fields["started"] = started_;
  fields["first_attempt"] = identity_.first_attempt;
  // No fsync here and in the report: after a power cut the run counts as lost, and launches of milliseconds stay that.
  return WriteFileAtomic(identity_.path + "/run.json",
                         fields.dump(2, ' ', false, json::error_handler_t::replace) + "\n", 0644, Durability::kProcess);
}

Status RunDir::WriteConfig(std::string_view yaml) {
  LOCKSTEP_RETURN_IF_ERROR(RequireAuthority("config.yaml"));
  return WriteFileAtomic(ConfigPath(), yaml, 0644, Durability::kProcess);
}

Status RunDir::WriteReport(json report) {
  LOCKSTEP_RETURN_IF_ERROR(RequireAuthority("report.json"));
  report["format"] = 1;
  report["name"] = identity_.name;
  if (!report.contains("started")) report["started"] = started_;
  if (!report.contains("ended")) report["ended"] = UnixSeconds();
  json& warnings = report["warnings"];
  if (!warnings.is_array()) warnings = json::array();
  if (events_lost_ > 0) {
    warnings.push_back(fmt::format("{} events could not be recorded: {}", events_lost_, event_error_.message()));
  }
  return WriteFileAtomic(identity_.path + "/report.json",
                         report.dump(2, ' ', false, json::error_handler_t::replace) + "\n", 0644, Durability::kProcess);
}

void RunDir::AppendEvent(std::string_view type, json fields) {
  if (!events_) return;  // discarded
  if (!fields.is_object()) fields = {{"value", std::move(fields)}};
  fields["t"] = UnixSeconds();
  fields["type"] = type;
  std::string line = (mid_line_ ? "\n" : "") + ToJsonLine(fields) + "\n";
  ssize_t n = 0;
  do {
    n = ::write(events_.get(), line.data(), line.size());
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(line.size())) {
    mid_line_ = false;
    return;
  }
  // A short write leaves part of a line; the next event begins on a new one and a reader skips the stump.
  if (n > 0) mid_line_ = true;
  ++events_lost_;
  event_error_ = FileError("write", identity_.path + "/events", n < 0 ? errno : ENOSPC);
}

Status RunDir::TouchLock() {
  LOCKSTEP_RETURN_IF_ERROR(RequireAuthority("the lock"));
  return lock_.Touch();
}

bool RunDir::Discard(int attempt) {
  const std::string& dir = identity_.path;
  if (!found_.run && HoldsWork(dir)) return false;
  std::error_code none;
  for (const int number : LogAttempts(dir)) {
    if (number < attempt) continue;
    const std::string folder = fmt::format("{}/logs/attempt-{}", dir, number);
    std::filesystem::remove_all(identity_.authority ? folder : LogDir(number, identity_.node), none);
    ::rmdir(folder.c_str());
  }
  if (identity_.authority) {
    const auto put_back = [](const std::string& path, const std::optional<std::string>& text) {
      if (text) {
        (void)WriteFileAtomic(path, *text, 0644, Durability::kProcess);
      } else {
        ::unlink(path.c_str());
      }
    };
    put_back(dir + "/run.json", found_.run_json);
    put_back(ConfigPath(), found_.config);
    if (!found_.report.empty()) ::rename(found_.report.c_str(), (dir + "/report.json").c_str());
    for (const auto& [path, size] : FileSizes(TelemetryDir(dir))) {
      const auto before = found_.samples.find(path);
      if (before == found_.samples.end()) {
        ::unlink(path.c_str());
      } else if (before->second < size) {
        std::filesystem::resize_file(path, before->second, none);
      }
    }
    ::rmdir(TelemetryDir(dir).c_str());
  }
  if (found_.events) {
    (void)!::ftruncate(events_.get(), *found_.events);
  } else {
    ::unlink(EventsPath().c_str());
  }
  events_.reset();
  ::rmdir((dir + "/nodes").c_str());  // like every rmdir here: only if it is empty
  if (!found_.run) {
    std::filesystem::remove_all(dir + "/metrics", none);
    std::filesystem::remove_all(dir + "/telemetry", none);
    ::rmdir((dir + "/logs").c_str());
  }
  lock_.Release();
  if (!found_.run) ::rmdir(dir.c_str());
  if (!found_.root) ::rmdir(std::filesystem::path(dir).parent_path().c_str());
  return true;
}

}  // namespace lockstep::record
