#include "watch/run_watch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/config_tree.h"
#include "base/digits.h"
#include "base/files.h"
#include "base/json.h"
#include "record/metric_scan.h"
#include "watch/line_values.h"

namespace lockstep::watch {
namespace {

using nlohmann::json;
using record::MetricLine;
using record::ScannedLine;

constexpr size_t kRecentBytes = 256u << 10;  // of a file of metric lines: where the rank is now
constexpr size_t kSampleBytes = 256u << 10;  // of a file of samples
constexpr double kClockDistance = 30;        // seconds: more than a sample is late
constexpr size_t kRecentLines = 2000;        // of a log that is read for its last steps alone
constexpr size_t kMostLogs = 4096;           // ranks followed through their logs; each holds a file open

std::optional<uint64_t> Positive(const json& object, const char* key) {
  const int64_t value = GetInt(object, key);
  return value > 0 ? std::optional<uint64_t>(static_cast<uint64_t>(value)) : std::nullopt;
}

// Changes when the file or folder does.
std::string Look(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return "-;";
  return fmt::format("{}.{}.{}.{};", info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

}  // namespace

RunWatch::RunWatch(std::string path) : events_(path), samples_(path) {
  view_.path = std::move(path);
  view_.name = std::filesystem::path(view_.path).filename().string();
}

bool RunWatch::MayHaveEnded() const { return record::ReadLock(view_.path + "/lock").state != record::LockState::kLive; }

LogPlace RunWatch::LogOf(int rank) const {
  for (const record::LogFile& file : log_files_) {
    if (file.rank == rank) return {.path = file.path, .only = std::nullopt};
  }
  return {};
}

void RunWatch::Poll(double now) {
  // The state first: what ranks wrote before the end is then on disk and read below.
  if (!ReadState()) {
    Conclude();
    return;
  }
  events_.Read(&view_.events);
  ReadMetrics();
  ReadCurve();
  ListLogs();
  ReadLogs(now);
  ReadSamples();
  ReadTotal();
  FindIn(now);
  if (view_.ended && !paces_read_) ReadPaces();
  paces_read_ = view_.ended;
  // Ranks that a later, smaller attempt has no more.
  std::erase_if(ranks_, [&](const auto& item) {
    return view_.world > 0 && item.first >= view_.world && item.second.view.attempt < view_.attempt;
  });
  Conclude();
  if (!view_.ended) CorrectClocks(now);
}

// Times of samples are by the clock of their node. Where that is far from ours, its file says when they came: a rank
// that goes on is not shown as silent.
void RunWatch::CorrectClocks(double now) {
  for (NodeView& node : view_.nodes) {
    if (node.t == 0 || std::abs(now - node.t) < kClockDistance) continue;
    struct stat info{};
    if (::stat(record::SamplePath(view_.path, node.node).c_str(), &info) != 0) continue;
    const double ahead = static_cast<double>(info.st_mtim.tv_sec) - node.t;
    if (std::abs(ahead) < kClockDistance) continue;
    node.t += ahead;
    for (RankView& rank : view_.ranks) {
      const Rank& from = ranks_[rank.rank];
      if (rank.node == node.node && !from.from_log && rank.last_seen > 0) rank.last_seen += ahead;
    }
  }
}

bool RunWatch::ReadState() {
  struct stat info{};
  if (::stat(view_.path.c_str(), &info) != 0) {
    view_.state = "removed";
    view_.ended = true;
    view_.reason = fmt::format("the run directory '{}' is no more", view_.path);
    return false;
  }
  // Events are many in a job of many ranks: they are read again only when something changed.
  std::string files;
  for (const char* name : {"/run.json", "/events.jsonl", "/report.json", "/logs"}) files += Look(view_.path + name);
  const bool live = !MayHaveEnded();
  if (files != state_files_ || live != (summary_.state == record::RunState::kRunning)) {
    state_files_ = std::move(files);
    summary_ = record::Summarise(view_.path);
  } else if (live && summary_.started > 0) {
    summary_.duration = std::max(0.0, UnixSeconds() - summary_.started);
  }
  view_.state = record::ToString(summary_.state);
  view_.ended = summary_.state != record::RunState::kRunning && summary_.state != record::RunState::kNodeOnly;
  view_.reason = summary_.reason;
  view_.exit_code = summary_.exit_code;
  view_.world = summary_.world;
  view_.nnodes = summary_.nnodes;
  view_.started = summary_.started;
  view_.duration = summary_.duration;
  view_.attempt = std::max(view_.attempt, summary_.attempts - 1);
  return true;
}

void RunWatch::ReadMetrics() {
  const std::string folder = view_.path + "/metrics";
  if (std::string look = Look(folder); look != metric_folder_) {
    metric_folder_ = std::move(look);
    Result<std::vector<std::string>> names = ListDir(folder);
    if (!names.ok()) names = std::vector<std::string>{};
    for (const std::string& name : *names) {
      std::string_view digits = name;
      if (!digits.starts_with("rank-") || !digits.ends_with(".jsonl")) continue;
      digits = digits.substr(5, digits.size() - 11);
      const std::optional<int> rank = ParseDigits(digits);
      if (!rank) continue;
      const auto [at, fresh] = files_.try_emplace(*rank, folder + "/" + name);
      if (fresh) at->second.SkipToLast(kRecentBytes);
    }
  }
  view_.bad_lines = 0;
  for (auto& [rank, file] : files_) {
    while (file.Scan([&, number = rank](const ScannedLine& line) { Take(number, line); })) {
    }
    view_.bad_lines += file.bad_lines();
  }
}

void RunWatch::Take(int number, const ScannedLine& line) {
  Rank& rank = ranks_[number];
  if (line.attempt < rank.view.attempt) return;
  const LineValues shown(line);
  window_.Add(line, shown);
  rank.from_metrics = true;
  rank.view.rank = number;
  if (line.attempt > rank.view.attempt) {
    rank = Rank();
    rank.view.attempt = line.attempt;
    rank.from_metrics = true;
  }
  view_.attempt = std::max(view_.attempt, line.attempt);
  // A value that came late, such as a validation's, says nothing of where the rank is.
  const std::optional<double> loss = shown.Of(LineValues::kLoss), time = shown.Of(LineValues::kStep);
  const bool late = line.step && rank.view.step && *line.step < *rank.view.step && !loss && !time;
  if (line.t > 0) rank.view.last_seen = line.t;
  Advance(&rank, late ? std::nullopt : line.step, line.t > 0 ? std::optional<double>(line.t) : std::nullopt, time);
  if (loss) rank.view.loss = loss;
  shown.Put(LineValues::kHost, &rank.view.memory_host);
  shown.Put(LineValues::kDevice, &rank.view.memory_device);
  shown.Put(LineValues::kData, &rank.view.data_seconds);
  shown.Put(LineValues::kExposed, &rank.view.collective_seconds);
  shown.Put(LineValues::kCollective, &rank.view.collective_seconds);
  if (number != files_.begin()->first) return;
  // Values of the whole run are in the lines of the leading rank.
  if (const std::optional<double> reduced = shown.reduced[LineValues::kLoss]) {
    view_.loss = reduced;
  } else if (loss) {
    view_.loss = loss;
  }
  shown.Put(LineValues::kSamples, &view_.samples_per_second);
  shown.Put(LineValues::kTokens, &view_.tokens_per_second);
  shown.Put(LineValues::kRate, &view_.learning_rate);
  shown.Put(LineValues::kNorm, &view_.gradient_norm);
}

void RunWatch::ReadCurve() {
  view_.read = 1;
  if (files_.empty()) return;
  if (!history_) history_.emplace(files_.begin()->second.path());
  const bool more = history_->Read([&](const MetricLine& line) {
    if (!line.step || line.attempt < curve_attempt_) return;
    curve_attempt_ = line.attempt;
    const std::optional<double> reduced = line.Find("loss");
    const std::optional<double> loss = reduced ? reduced : line.Find("rank/loss");
    if (loss) view_.curve.Add(*line.step, *loss);
  });
  if (more) view_.read = std::min(0.99, history_->part());
}

void RunWatch::ListLogs() {
  const std::vector<int> attempts = record::LogAttempts(view_.path);
  if (attempts.empty()) return;
  const std::string folder = fmt::format("{}/logs/attempt-{}", view_.path, attempts.back());
  std::string look = Look(folder);
  for (const std::string& node : ListDir(folder).ok() ? *ListDir(folder) : std::vector<std::string>{}) {
    look += Look(folder + "/" + node);
  }
  if (look == log_folders_) return;
  log_folders_ = std::move(look);
  if (attempts.back() != log_attempt_) logs_.clear();
  log_attempt_ = attempts.back();
  log_files_ = record::LogFiles(view_.path, log_attempt_);
}

// Logs of the last attempt: of ranks that write no metric lines, and of the first for the number of steps.
void RunWatch::ReadLogs(double now) {
  const auto needless = [&](int rank) {
    const auto known = ranks_.find(rank);
    const bool measured = known != ranks_.end() && known->second.from_metrics;
    return measured && (rank != 0 || total_known_);
  };
  for (const record::LogFile& file : log_files_) {
    if (logs_.size() >= kMostLogs || needless(file.rank) || logs_.contains(file.path)) continue;
    auto log = std::make_unique<LogProgress>(file.path, file.rank);
    // Only the curve of the first rank is drawn, so only its history is read.
    if (file.rank == 0 && files_.empty()) {
      log->SkipToHistory();
    } else {
      log->SkipToLast(kRecentLines, kRecentBytes);
    }
    logs_.emplace(file.path, RankLog{file.rank, std::move(log)});
  }
  // Metric lines that appeared meanwhile say more.
  std::erase_if(logs_, [&](const auto& item) { return needless(item.second.rank); });
  for (auto& [path, log] : logs_) {
    const double modified = log.progress->Read([&](const LogSign& sign) {
      if (sign.state.total && sign.rank == 0) log_total_ = sign.state.TotalOfRun();
      Rank& rank = ranks_[sign.rank];
      if (rank.from_metrics) return;
      if (rank.view.attempt != log_attempt_) rank = Rank();
      rank.view.attempt = log_attempt_;
      TakeSign(sign, &rank);
      // Samples say the same of a rank, with the time.
      const bool advanced = sign.redrawn == LogSign::Redrawn::kNo;
      if (advanced && view_.nodes.empty() && log.progress->part() >= 1) {
        window_.AddProgress(sign.rank, now, sign.state.StepOfRun(), sign.state.seconds_per_step, sign.loss);
      }
      if (sign.rank != 0 || !files_.empty()) return;
      if (sign.state.step) TakeLoss(sign);
      TakeValues(sign.values);
    });
    view_.read = std::min(view_.read, log.progress->part());
    WrittenAt(modified, now, log.rank);
  }
}

// Machines, and ranks whose files are on another machine.
void RunWatch::ReadSamples() {
  const auto take = [&](const record::NodeSample& sample) {
    if (sample.attempt < view_.attempt) return;
    view_.attempt = sample.attempt;
    nodes_.Take(sample);
    window_.Add(sample);
    for (const record::RankSample& from : sample.ranks) {
      if (from.rank < 0 || (view_.world > 0 && from.rank >= view_.world)) continue;
      Rank& rank = ranks_[from.rank];
      if (rank.view.attempt < sample.attempt) {
        rank = Rank();
        rank.view.attempt = sample.attempt;
      }
      const bool heard = rank.from_metrics || rank.from_log;
      NodeSamples::Apply(sample, from, !heard, &rank.view);
    }
  };
  while (samples_.Read(take, kSampleBytes)) {
  }
  nodes_.CopyTo(&view_.nodes);
}

// Of a run that is over, what was found at its end: nobody is stalled then.
void RunWatch::FindIn(double now) {
  if (view_.ended) {
    double last = 0;
    for (const auto& [number, rank] : ranks_) {
      window_.Ended(number);
      last = std::max(last, rank.view.last_seen);
    }
    if (last > 0) now = std::min(now, last);
  }
  Find(now);
}

// Of a run that is over: what its launchers measured of ranks that write no metric lines.
void RunWatch::ReadPaces() {
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
void RunWatch::ReadTotal() {
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

}  // namespace lockstep::watch
