#include "watch/model.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/config_tree.h"
#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;
using record::MetricLine;

constexpr double kNewWeight = 0.2;           // of the newest step in the smoothed time
constexpr size_t kRecentBytes = 256u << 10;  // of ranks whose history is not drawn
constexpr size_t kRecentLines = 2000;        // of a log that is read for the number of steps alone
constexpr size_t kHistoryLines = 500'000;    // of a log whose loss is drawn
constexpr size_t kMostLogs = 256;            // ranks followed through their logs; each holds a file open
constexpr double kSilentAfter = 60;          // seconds without a line until a log counts as silent

template <typename T>
json OrNull(const std::optional<T>& value) {
  if (!value) return nullptr;
  if constexpr (std::is_floating_point_v<T>) {
    // As in metric lines: JSON has no such numbers.
    if (std::isnan(*value)) return "nan";
    if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  }
  return *value;
}

json EpochJson(const std::optional<EpochView>& epoch) {
  if (!epoch) return nullptr;
  return {{"number", epoch->number}, {"of", OrNull(epoch->of)}, {"step", epoch->step}, {"total", epoch->total}};
}

std::optional<double> PerSecond(const std::optional<double>& seconds) {
  if (!seconds || !(*seconds > 0)) return std::nullopt;
  return 1 / *seconds;
}

// A value of this rank alone, else the one reduced over ranks.
std::optional<double> Own(const MetricLine& line, const std::string& name) {
  std::optional<double> own = line.Find("rank/" + name);
  return own ? own : line.Find(name);
}

std::optional<uint64_t> Positive(const json& object, const char* key) {
  const int64_t value = GetInt(object, key);
  return value > 0 ? std::optional<uint64_t>(static_cast<uint64_t>(value)) : std::nullopt;
}

bool IsFile(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

double ModifiedAt(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return UnixSeconds();
  return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

class RunWatch final : public Watch {
 public:
  explicit RunWatch(std::string path) {
    view_.path = std::move(path);
    view_.name = std::filesystem::path(view_.path).filename().string();
  }

  bool MayHaveEnded() const override {
    return record::ReadLock(view_.path + "/lock").state != record::LockState::kLive;
  }

  void Poll(double now) override {
    // The state first: what ranks wrote before the end is then on disk and read below.
    const record::RunSummary run = record::Summarise(view_.path);
    view_.state = record::ToString(run.state);
    view_.ended = run.state != record::RunState::kRunning && run.state != record::RunState::kNodeOnly;
    view_.reason = run.reason;
    view_.exit_code = run.exit_code;
    view_.world = run.world;
    view_.started = run.started;
    view_.duration = run.duration;
    view_.attempt = std::max(view_.attempt, run.attempts - 1);
    ReadMetrics();
    ReadLogs(now);
    ReadTotal();
    if (view_.ended && !paces_read_) ReadPaces();
    paces_read_ = view_.ended;
    // Ranks that a later, smaller attempt has no more.
    std::erase_if(ranks_, [&](const auto& item) {
      return view_.world > 0 && item.first >= view_.world && item.second.view.attempt < view_.attempt;
    });
    Conclude();
  }

 private:
  void ReadMetrics() {
    Result<std::vector<std::string>> names = ListDir(view_.path + "/metrics");
    if (names.ok()) {
      for (const std::string& name : *names) {
        std::string_view digits = name;
        if (!digits.starts_with("rank-") || !digits.ends_with(".jsonl")) continue;
        digits = digits.substr(5, digits.size() - 11);
        const std::optional<int> rank = ParseDigits(digits);
        if (!rank) continue;
        files_.try_emplace(*rank, view_.path + "/metrics/" + name);
      }
    }
    view_.bad_lines = 0;
    for (auto& [rank, file] : files_) {
      // Only the curve of the leading rank is drawn, so only its history is read.
      if (rank != files_.begin()->first && !begun_.contains(rank)) file.SkipToLast(kRecentBytes);
      begun_.insert(rank);
      const bool leads = rank == files_.begin()->first;
      while (file.Read([&, number = rank](const MetricLine& line) { Take(number, line, leads); })) {
      }
      view_.bad_lines += file.bad_lines();
    }
  }

  void Take(int number, const MetricLine& line, bool leads) {
    Rank& rank = ranks_[number];
    if (line.attempt < rank.view.attempt) return;
    rank.from_metrics = true;
    rank.view.rank = number;
    if (line.attempt > rank.view.attempt) {
      rank = Rank();
      rank.view.attempt = line.attempt;
      rank.from_metrics = true;
    }
    view_.attempt = std::max(view_.attempt, line.attempt);
    // A value that came late, such as a validation's, says nothing of where the rank is.
    const std::optional<double> loss = Own(line, "loss"), time = Own(line, "time/step");
    const bool late = line.step && rank.view.step && *line.step < *rank.view.step && !loss && !time;
    rank.view.last_sign = std::max(rank.view.last_sign, line.t);
    Advance(&rank, late ? std::nullopt : line.step, line.t > 0 ? std::optional<double>(line.t) : std::nullopt, time);
    if (loss) rank.view.loss = loss;
    if (auto bytes = Own(line, "memory/host")) rank.view.memory_host = bytes;
    if (auto bytes = Own(line, "memory/device")) rank.view.memory_device = bytes;
    if (leads) {
      const std::optional<double> reduced = line.Find("loss");
      if (const std::optional<double> drawn = reduced ? reduced : loss; drawn && line.step) {
        view_.curve.Add(*line.step, *drawn);
        view_.loss = drawn;
      }
    }
  }

  // Logs of the last attempt: of ranks that write no metric lines, and of the first for the number of steps.
  void ReadLogs(double now) {
    const std::vector<int> attempts = record::LogAttempts(view_.path);
    if (attempts.empty()) return;
    if (attempts.back() != log_attempt_) {
      logs_.clear();
      log_attempt_ = attempts.back();
    }
    for (const record::LogFile& file : record::LogFiles(view_.path, log_attempt_)) {
      if (logs_.contains(file.path) || logs_.size() >= kMostLogs) continue;
      const auto known = ranks_.find(file.rank);
      const bool measured = known != ranks_.end() && known->second.from_metrics;
      if (measured && (file.rank != 0 || total_known_)) continue;
      auto log = std::make_unique<LogProgress>(file.path, file.rank);
      log->SkipToLast(measured ? kRecentLines : kHistoryLines);
      logs_.emplace(file.path, RankLog{file.rank, std::move(log)});
    }
    // Metric lines that appeared meanwhile say more.
    std::erase_if(logs_, [&](const auto& item) {
      const auto known = ranks_.find(item.second.rank);
      const bool measured = known != ranks_.end() && known->second.from_metrics;
      return measured && (item.second.rank != 0 || total_known_);
    });
    for (auto& [path, log] : logs_) {
      const double modified = ModifiedAt(path);
      log.progress->Read([&](const LogSign& sign) {
        if (sign.state.total && sign.rank == 0) log_total_ = sign.state.TotalOfRun();
        Rank& rank = ranks_[sign.rank];
        if (rank.from_metrics) return;
        if (rank.view.attempt != log_attempt_) rank = Rank();
        rank.view.attempt = log_attempt_;
        TakeSign(sign, &rank);
        if (!sign.loss) return;
        if (sign.rank == 0 && files_.empty() && sign.state.step) {
          view_.curve.Add(*sign.state.StepOfRun(), *sign.loss);
          view_.loss = sign.loss;
        }
      });
      WrittenAt(modified, now);
    }
  }

  // Of a run that is over: what its launchers measured of ranks that write no metric lines.
  void ReadPaces() {
    std::vector<std::string> files = {view_.path + "/events.jsonl"};
    if (Result<std::vector<std::string>> nodes = ListDir(view_.path + "/nodes"); nodes.ok()) {
      for (const std::string& name : *nodes) files.push_back(view_.path + "/nodes/" + name);
    }
    for (const std::string& file : files) {
      const Result<JsonLines> events = ReadJsonLines(file);
      if (!events.ok()) continue;
      for (const json& event : events->lines) {
        if (GetString(event, "type") != "rank_progress" || GetInt(event, "attempt") != log_attempt_) continue;
        const auto rank = ranks_.find(static_cast<int>(GetInt(event, "rank", -1)));
        const auto seconds = event.find("seconds_per_step");
        if (rank == ranks_.end() || rank->second.view.seconds_per_step || seconds == event.end()) continue;
        if (seconds->is_number() && *seconds > 0) rank->second.view.seconds_per_step = seconds->get<double>();
      }
    }
  }

  // The configuration says it, or the run's identity, or the lines of the first rank.
  void ReadTotal() {
    if (!total_known_) {
      Result<ConfigTree> config = ConfigTree::Load(view_.path + "/config.yaml");
      const ConfigNode* train = config.ok() ? config->root().Find("train") : nullptr;
      const ConfigNode* steps = train != nullptr ? train->Find("steps") : nullptr;
      const bool scalar = steps != nullptr && steps->kind == ConfigNode::Kind::kScalar;
      const uint64_t value = scalar ? LeadingDigits<uint64_t>(steps->text).value_or(0) : 0;
      if (value > 0) view_.total = value;
      if (value == 0) {
        if (const std::optional<json> about = record::ReadRunJson(view_.path)) {
          view_.total = Positive(*about, "total_steps");
        }
      }
      total_known_ = view_.total.has_value();
    }
    if (!total_known_) view_.total = log_total_;
  }

  struct RankLog {
    int rank = 0;
    std::unique_ptr<LogProgress> progress;
  };

  std::map<int, record::MetricFollower> files_;
  std::set<int> begun_;
  std::map<std::string, RankLog> logs_;
  int log_attempt_ = -1;
  bool paces_read_ = false;
  bool total_known_ = false;
  std::optional<uint64_t> log_total_;
};

class LogWatch final : public Watch {
 public:
  explicit LogWatch(const std::string& path) : log_(path, std::nullopt) {
    view_.log = true;
    view_.path = path;
    view_.name = std::filesystem::path(path).filename().string();
    log_.SkipToLast(kHistoryLines);
  }

  bool MayHaveEnded() const override { return false; }

  void Poll(double now) override {
    const double modified = ModifiedAt(view_.path);
    log_.Read([&](const LogSign& sign) {
      TakeSign(sign, &ranks_[sign.rank]);
      if (sign.state.total) view_.total = sign.state.TotalOfRun();
      if (!sign.loss) return;
      if (ranks_.begin()->first == sign.rank && sign.state.step) {
        view_.curve.Add(*sign.state.StepOfRun(), *sign.loss);
        view_.loss = sign.loss;
      }
    });
    WrittenAt(modified, now);
    Conclude();
    const bool epoch_complete = !view_.total && view_.epoch && view_.epoch->step >= view_.epoch->total;
    const bool complete = epoch_complete || (view_.total && view_.step && *view_.step >= *view_.total);
    const bool quiet = now - modified > kSilentAfter;
    view_.state = complete ? "complete" : quiet ? "silent" : "running";
    // A log has no end of its own: the last step is one when nothing follows it. A bar that starts again with every
    // epoch only pauses.
    view_.ended = complete && quiet;
    view_.reason = epoch_complete ? fmt::format("the last step of epoch {} was reached", view_.epoch->number)
                   : complete     ? fmt::format("step {} of {} was reached", *view_.step, *view_.total)
                                  : "";
  }

 private:
  LogProgress log_;
};

}  // namespace

void Watch::Advance(Rank* rank, std::optional<uint64_t> step, std::optional<double> t,
                    std::optional<double> seconds_per_step) {
  if (!step) return;
  rank->view.step = step;
  if (t) rank->pace.Add(*step, *t);
  const double stated = seconds_per_step.value_or(0);
  if (std::isfinite(stated) && stated > 0) {
    rank->stated = rank->stated ? (1 - kNewWeight) * *rank->stated + kNewWeight * stated : stated;
  }
  if (const std::optional<double> seconds = rank->stated ? rank->stated : rank->pace.seconds_per_step()) {
    rank->view.seconds_per_step = seconds;
  }
}

void Watch::TakeSign(const LogSign& sign, Rank* rank) {
  rank->view.rank = sign.rank;
  rank->heard = true;
  rank->stamped = rank->stamped || sign.stamp;
  const record::ProgressState& state = sign.state;
  rank->view.epoch.reset();
  if (state.epoch && state.step && state.total) {
    rank->view.epoch = EpochView{state.epoch->number, state.epoch->of, *state.step, *state.total};
  }
  Advance(rank, state.StepOfRun(), sign.stamp, sign.state.of_training ? sign.state.seconds_per_step : std::nullopt);
  if (sign.loss) rank->view.loss = sign.loss;
}

void Watch::WrittenAt(double modified, double now) {
  for (auto& [number, rank] : ranks_) {
    if (!std::exchange(rank.heard, false)) continue;
    rank.view.last_sign = std::min(modified, now);
    // Of several lines of one poll the last is as old as the file.
    if (!rank.stamped) Advance(&rank, rank.view.step, modified, std::nullopt);
  }
}

void Watch::Conclude() {
  view_.ranks.clear();
  const Rank* leader = nullptr;
  for (auto& [number, rank] : ranks_) {
    rank.view.rank = number;
    view_.ranks.push_back(rank.view);
    if (leader == nullptr && rank.view.step) leader = &rank;
  }
  view_.step = leader != nullptr ? leader->view.step : std::nullopt;
  view_.epoch = leader != nullptr ? leader->view.epoch : std::nullopt;
  view_.seconds_per_step = leader != nullptr ? leader->view.seconds_per_step : std::nullopt;
  view_.eta.reset();
  if (!view_.ended && view_.total && view_.step && view_.seconds_per_step && *view_.total > *view_.step) {
    view_.eta = *view_.seconds_per_step * static_cast<double>(*view_.total - *view_.step);
  }
}

Result<std::unique_ptr<Watch>> Watch::Open(const std::string& root, const std::string& which) {
  if (IsFile(which)) {
    struct stat info{};
    if (::stat(which.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      return Status(Code::kUsage, fmt::format("'{}' is no regular file", Printable(which)),
                    "give the log file itself, a pipe cannot be watched");
    }
    // Said now rather than as an empty table for ever.
    if (::access(which.c_str(), R_OK) != 0) return FileError("read", which, errno);
    return std::unique_ptr<Watch>(std::make_unique<LogWatch>(which));
  }
  Result<std::string> path = record::FindRun(root, which);
  if (!path.ok() && which.find('/') == std::string::npos && std::filesystem::is_directory(which)) {
    path = record::FindRun(root, "./" + which);
  }
  if (!path.ok()) {
    return path.status().WithHint("give a run (see `lockstep runs`; --log-dir says where they are) or a log file");
  }
  return std::unique_ptr<Watch>(std::make_unique<RunWatch>(*path));
}

json RunView::ToJson(double now) const {
  json list = json::array();
  for (const RankView& rank : ranks) {
    list.push_back({{"rank", rank.rank},
                    {"attempt", rank.attempt},
                    {"step", OrNull(rank.step)},
                    {"epoch", EpochJson(rank.epoch)},
                    {"seconds_per_step", OrNull(rank.seconds_per_step)},
                    {"steps_per_second", OrNull(PerSecond(rank.seconds_per_step))},
                    {"loss", OrNull(rank.loss)},
                    {"memory_host", OrNull(rank.memory_host)},
                    {"memory_device", OrNull(rank.memory_device)},
                    {"last_sign", rank.last_sign > 0 ? json(rank.last_sign) : json()},
                    {"age", rank.last_sign > 0 ? json(std::max(0.0, now - rank.last_sign)) : json()}});
  }
  json points = json::array();
  for (const SeriesPoint& point : curve.points()) points.push_back({point.step, point.mean(), point.low, point.high});
  return {{"name", name},
          {"path", path},
          {"kind", log ? "log" : "run"},
          {"state", state},
          {"ended", ended},
          {"reason", reason},
          {"exit_code", OrNull(exit_code)},
          {"attempt", attempt},
          {"world_size", world > 0 ? json(world) : json()},
          {"step", OrNull(step)},
          {"total", OrNull(total)},
          {"epoch", EpochJson(epoch)},
          {"seconds_per_step", OrNull(seconds_per_step)},
          {"steps_per_second", OrNull(PerSecond(seconds_per_step))},
          {"eta", OrNull(eta)},
          {"loss", OrNull(loss)},
          {"bad_lines", bad_lines},
          {"ranks", list},
          {"loss_curve", points}};
}

}  // namespace lockstep::watch
