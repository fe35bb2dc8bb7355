#include "watch/model.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/text.h"
#include "record/reader.h"
#include "watch/log_watch.h"
#include "watch/run_watch.h"

namespace lockstep::watch {
namespace {

constexpr double kNewWeight = 0.2;  // of the newest step in the smoothed time

bool IsFile(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

constexpr const char* kRunOrLog = "give a run (see `lockstep runs`; --log-dir says where they are) or a log file";

// ", did you mean 'log.txt'?": the nearest file beside it.
std::string NearestFile(const std::string& which) {
  const size_t slash = which.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : which.substr(0, slash + 1);
  const Result<std::vector<std::string>> names = ListDir(folder);
  if (!names.ok()) return "";
  std::vector<std::string> files;
  for (const std::string& name : *names) {
    const std::string path = slash == std::string::npos ? name : folder + name;
    if (IsFile(path)) files.push_back(path);
  }
  return DidYouMean(which, files);
}

// No file has this name, and no run.
Status NothingNamed(const std::string& root, const std::string& which, const Status& run) {
  const std::string file = NearestFile(which);
  // What is known of runs with such a name says more, unless a file is nearer.
  if (file.empty() && run.message().find(Printable(which)) != std::string::npos) return run.WithHint(kRunOrLog);
  return Status(
      Code::kUsage,
      fmt::format("there is no log file '{0}' here and no run '{0}' under '{1}'{2}", Printable(which), root, file),
      kRunOrLog);
}

// Whose first bytes say that it is no text that can be read as it is.
Status ExpectText(const std::string& path) {
  struct Kind {
    std::string_view start, name, remedy;
  };
  static constexpr Kind kKinds[] = {
      {"\x1f\x8b", "compressed (gzip)", "gunzip -c"},
      {"\x28\xb5\x2f\xfd", "compressed (zstd)", "zstd -dc"},
      {{"\xfd\x37\x7a\x58\x5a\x00", 6}, "compressed (xz)", "xz -dc"},
      {"BZh", "compressed (bzip2)", "bunzip2 -c"},
      {"PK\x03\x04", "a zip archive", "unzip -p"},
      {"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"},
      {"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"},
  };
  char start[8] = {};
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const ssize_t n = fd ? ::read(fd.get(), start, sizeof start) : -1;
  if (n < 0) return FileError("read", path, errno);
  const std::string_view found(start, static_cast<size_t>(n));
  for (const Kind& kind : kKinds) {
    if (!found.starts_with(kind.start)) continue;
    return Status(
        Code::kUsage, fmt::format("the log '{}' is {}", Printable(path), kind.name),
        fmt::format("write it as plain text into another file (`{} FILE > TEXT`) and watch that", kind.remedy));
  }
  return Status();
}

void TakeLarger(const std::optional<double>& value, std::optional<double>* largest) {
  if (value && (!*largest || *value > **largest)) *largest = value;
}

}  // namespace

void Watch::Advance(Rank* rank, std::optional<uint64_t> step, std::optional<double> t,
                    std::optional<double> seconds_per_step) {
  if (!step) return;
  if (rank->view.step && *step > *rank->view.step) rank->view.steps_per_line = *step - *rank->view.step;
  rank->view.step = step;
  if (t) rank->pace.Add(*step, *t);
  const double stated = seconds_per_step.value_or(0);
  if (std::isfinite(stated) && stated > 0) {
    // The first step is slower than all others (compilation, caches), and soon forgotten.
    const double weight = std::max(kNewWeight, 1.0 / std::max(1, rank->statements++));
    rank->stated = rank->stated ? (1 - weight) * *rank->stated + weight * stated : stated;
  }
  if (const std::optional<double> seconds = rank->stated ? rank->stated : rank->pace.seconds_per_step()) {
    rank->view.seconds_per_step = seconds;
  }
}

void Watch::TakeSign(const LogSign& sign, Rank* rank) {
  rank->view.rank = sign.rank;
  if (sign.loss) rank->view.loss = sign.loss;
  if (sign.redrawn != LogSign::Redrawn::kNo) return;
  rank->heard = rank->from_log = true;
  rank->stamped = rank->stamped || sign.stamp;
  const record::ProgressState& state = sign.state;
  if (std::exchange(rank->takeovers, state.takeovers) != state.takeovers) {  // the steps of something else
    rank->stated.reset();
    rank->statements = 0;
    rank->pace = Pace();
  }
  rank->view.epoch.reset();
  rank->view.epochs_done = state.epochs_done;
  if (state.epoch && state.step && state.total) {
    rank->view.epoch = EpochView{state.epoch->number, state.epoch->of, *state.step, *state.total};
  }
  Advance(rank, state.StepOfRun(), sign.stamp, sign.state.of_training ? sign.state.seconds_per_step : std::nullopt);
}

void Watch::TakeLoss(const LogSign& sign) {
  if (!sign.loss) return;
  view_.loss = sign.loss;
  if (!sign.state.step) return;
  const uint64_t step = *sign.state.StepOfRun();
  if (sign.redrawn == LogSign::Redrawn::kNo) view_.curve.Add(step, *sign.loss);
  if (sign.redrawn == LogSign::Redrawn::kOfStep) view_.curve.Replace(step, *sign.loss);
}

void Watch::TakeValues(const record::ProgressValues& values) {
  if (values.samples_per_second) view_.samples_per_second = values.samples_per_second;
  if (values.tokens_per_second) view_.tokens_per_second = values.tokens_per_second;
  if (values.learning_rate) view_.learning_rate = values.learning_rate;
  if (values.gradient_norm) view_.gradient_norm = values.gradient_norm;
}

void Watch::WrittenAt(double modified, double now, std::optional<int> only) {
  const auto begin = only ? ranks_.find(*only) : ranks_.begin();
  const auto end = only && begin != ranks_.end() ? std::next(begin) : ranks_.end();
  for (auto at = begin; at != end; ++at) {
    Rank& rank = at->second;
    if (!std::exchange(rank.heard, false)) continue;
    rank.view.last_seen = std::min(modified, now);
    // Of several lines of one poll the last is as old as the file.
    if (!rank.stamped) Advance(&rank, rank.view.step, modified, std::nullopt);
  }
}

void Watch::Conclude() {
  // Over what is there: a thousand ranks keep their memory.
  view_.ranks.resize(ranks_.size());
  auto shown = view_.ranks.begin();
  view_.data_wait.reset();
  view_.collective_wait.reset();
  view_.memory_host.reset();
  view_.memory_device.reset();
  double waited = 0;
  int waiting = 0;
  const Rank* leader = nullptr;
  for (auto& [number, rank] : ranks_) {
    rank.view.rank = number;
    *shown++ = rank.view;
    if (leader == nullptr && rank.view.step) leader = &rank;
    TakeLarger(rank.view.DataWait(), &view_.data_wait);
    TakeLarger(rank.view.rss ? rank.view.rss : rank.view.memory_host, &view_.memory_host);
    const GpuView* gpu = rank.view.memory_device ? nullptr : view_.GpuOf(rank.view);
    TakeLarger(gpu != nullptr ? gpu->memory_used : rank.view.memory_device, &view_.memory_device);
    if (const auto wait = rank.view.CollectiveWait()) waited += *wait, ++waiting;
  }
  if (waiting > 0) view_.collective_wait = waited / waiting;
  view_.step = leader != nullptr ? leader->view.step : std::nullopt;
  view_.epoch = leader != nullptr ? leader->view.epoch : std::nullopt;
  view_.epochs_done = leader != nullptr ? leader->view.epochs_done : std::nullopt;
  view_.seconds_per_step = leader != nullptr ? leader->view.seconds_per_step : std::nullopt;
  view_.eta.reset();
  if (!view_.ended && view_.total && view_.step && view_.seconds_per_step && *view_.total > *view_.step) {
    view_.eta = *view_.seconds_per_step * static_cast<double>(*view_.total - *view_.step);
  }
}

void Watch::Find(double now) {
  // With a thousand ranks the comparison takes milliseconds: it may have a small part of the time.
  const TimePoint begin = Now();
  if (begin < next_find_) return;
  view_.findings.clear();
  std::map<std::string, double> since;
  for (const Finding& finding : FindAll(window_, now)) {
    const std::string subject = fmt::format("{} {} {} {}", finding.rule, finding.rank.value_or(-1),
                                            finding.node.value_or(-1), finding.gpu.value_or(-1));
    const auto before = since_.find(subject);
    const double first = before != since_.end() ? before->second : now;
    since[subject] = first;
    view_.findings.push_back({.kind = finding.rule,
                              .text = finding.text,
                              .evidence = finding.evidence,
                              .stage = finding.stage,
                              .node = finding.node.value_or(-1),
                              .rank = finding.rank.value_or(-1),
                              .since = first});
  }
  since_ = std::move(since);
  next_find_ = Now() + std::min<Clock::duration>(300 * (Now() - begin), std::chrono::seconds(4));
}

void TellNamesApart(const std::vector<std::unique_ptr<Watch>>& watches) {
  std::map<std::string, std::vector<Watch*>> same;
  for (const auto& watch : watches) same[watch->view().name].push_back(watch.get());
  // The last `parts` parts of where it is.
  const auto tail = [](const Watch& watch, size_t parts) {
    const std::filesystem::path path = std::filesystem::absolute(watch.view().path).lexically_normal();
    const auto length = static_cast<size_t>(std::distance(path.begin(), path.end()));
    std::filesystem::path out;
    for (auto at = std::next(path.begin(), static_cast<long>(length - std::min(parts, length))); at != path.end();
         ++at) {
      out /= *at;
    }
    return out.string();
  };
  for (const auto& [name, group] : same) {
    const auto names = [&, &of = group](size_t parts) {
      std::set<std::string> out;
      for (const Watch* watch : of) out.insert(tail(*watch, parts));
      return out.size();
    };
    size_t parts = 1;
    while (names(parts) < names(SIZE_MAX)) ++parts;
    std::map<std::string, int> seen;
    for (Watch* watch : group) {
      const std::string longer = parts > 1 ? tail(*watch, parts) : name;
      const int count = ++seen[longer];
      watch->SetName(count > 1 ? fmt::format("{} ({})", longer, count) : longer);
    }
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
    if (Status text = ExpectText(which); !text.ok()) return text;
    return std::unique_ptr<Watch>(std::make_unique<LogWatch>(which));
  }
  Result<std::string> path = record::FindRun(root, which);
  if (!path.ok() && which.find('/') == std::string::npos && std::filesystem::is_directory(which)) {
    path = record::FindRun(root, "./" + which);
  }
  if (!path.ok()) {
    std::error_code ignored;
    const bool there = std::filesystem::exists(which, ignored);
    if (!there && which != "latest" && which.find('/') == std::string::npos)
      return NothingNamed(root, which, path.status());
    if (!there && which != "latest") {
      return Status(Code::kUsage,
                    fmt::format("there is no run and no log file '{}'{}", Printable(which), NearestFile(which)),
                    kRunOrLog);
    }
    return path.status().WithHint(kRunOrLog);
  }
  return std::unique_ptr<Watch>(std::make_unique<RunWatch>(*path));
}

}  // namespace lockstep::watch
