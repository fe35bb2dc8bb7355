#include "watch/log_progress.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "base/clock.h"
#include "base/digits.h"
#include "record/time_stamp.h"

namespace lockstep::watch {
namespace {

constexpr size_t kLongestLine = 64u << 10;
constexpr size_t kHistoryLines = 500'000;
constexpr size_t kHistoryBytes = 64u << 20;
constexpr size_t kBytesAtOnce = 4u << 20;  // between two of them a screen is drawn
constexpr size_t kStampWithin = 40;
constexpr int kAnyYear = 2000;       // of stamps without one: differences are all that counts
constexpr size_t kMostRanks = 4096;  // a log that counts something else before every line must not fill memory

constexpr size_t kLongestPrefix = 80;

// A stamp among the first words: "2026-01-01 10:00:00,123 INFO ...", "[2026-01-01 10:00:00] ...", "I0101 10:00:00.1
// ...".
std::optional<double> StampOf(std::string_view line) {
  // Metric lines: {"t": 1700000000.5, ...
  constexpr std::string_view kMetricTime = "{\"t\":";
  if (line.starts_with(kMetricTime)) {
    const double t = std::strtod(std::string(line.substr(kMetricTime.size(), kStampWithin)).c_str(), nullptr);
    return t > 0 && std::isfinite(t) ? std::optional<double>(t) : std::nullopt;
  }
  const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (size_t at = 0; at < line.size() && at < kStampWithin; ++at) {
    if (!word(line[at]) || (at > 0 && word(line[at - 1]))) continue;
    if (const auto stamp = record::ParseTimeStamp(line.substr(at), kAnyYear)) return stamp->time;
  }
  return std::nullopt;
}

bool Cut(std::string_view* text, std::string_view word) {
  if (!text->starts_with(word)) return false;
  text->remove_prefix(word.size());
  return true;
}

// "[1,3]<stdout>:" (mpirun --tag-output), "[prterun-gpu7-4711@1,3]<stdout>:" (Open MPI 5), "[3]<stdout>:" (horovodrun):
// the last number.
std::optional<int> CutTag(std::string_view* text) {
  std::string_view rest = *text;
  const size_t close = rest.substr(0, kLongestPrefix).find("]<std");
  if (!Cut(&rest, "[") || close == std::string_view::npos) return std::nullopt;
  std::string_view tag = text->substr(1, close - 1);
  tag.remove_prefix(tag.rfind(',') + 1);  // npos + 1: all of it
  rest.remove_prefix(close);
  const std::optional<int> rank = TakeDigits(&tag);
  if (!rank || !tag.empty() || (!Cut(&rest, "<stdout>:") && !Cut(&rest, "<stderr>:"))) return std::nullopt;
  *text = rest;
  return rank;
}

// "[rank3]:" (torch), "[default3]:", "[trainer3]:" (torchrun --tee, --role), "[trainer3|1]:" with the local rank.
std::optional<int> CutRole(std::string_view* text) {
  std::string_view rest = *text;
  if (!Cut(&rest, "[")) return std::nullopt;
  const size_t digits = rest.substr(0, kLongestPrefix).find_first_of("0123456789]");
  if (digits == std::string_view::npos || digits == 0) return std::nullopt;
  const std::string_view role = rest.substr(0, digits);
  const auto named = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  if (!std::all_of(role.begin(), role.end(), named)) return std::nullopt;
  rest.remove_prefix(digits);
  const std::optional<int> rank = TakeDigits(&rest);
  if (!rank || (Cut(&rest, "|") && !TakeDigits(&rest)) || !Cut(&rest, "]:")) return std::nullopt;
  *text = rest;
  return rank;
}

// "1:3| ": node and rank (lockstep); "3: " (srun -l).
std::optional<int> CutNumber(std::string_view* text) {
  std::string_view rest = *text;
  std::optional<int> rank = TakeDigits(&rest);
  if (!rank || !Cut(&rest, ":")) return std::nullopt;
  if (!Cut(&rest, " ")) {
    rank = TakeDigits(&rest);
    if (!rank || !Cut(&rest, "| ")) return std::nullopt;
  }
  *text = rest;
  return rank;
}

}  // namespace

std::optional<int> CutRankPrefix(std::string_view* line) {
  std::string_view start = *line;
  // srun -l pads the number to the width of the largest.
  while (!start.empty() && start.front() == ' ') start.remove_prefix(1);
  for (const auto cut : {CutNumber, CutTag, CutRole}) {
    if (const std::optional<int> rank = cut(&start)) {
      *line = start;
      return rank;
    }
  }
  return std::nullopt;
}

void LogProgress::Line(std::string_view line, const std::function<void(const LogSign&)>& each) {
  int rank = rank_.value_or(0);
  if (!rank_) rank = CutRankPrefix(&line).value_or(0);
  if (streams_.size() >= kMostRanks && streams_.count(rank) == 0) return;
  Stream& stream = streams_[rank];
  const std::optional<std::string> row = csv_.Take(line);
  if (row) line = *row;
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  const bool progress = stream.tracker.Feed(line, Now());
  if (stream.tracker.redrawn()) {
    // "Step: 10, Rank: 1, loss = 2.1": of several ranks, each with the same step.
    if (line.find("Rank") != std::string_view::npos || line.find("rank") != std::string_view::npos) return;
    LogSign sign{.rank = rank,
                 .state = stream.tracker.state(),
                 .loss = record::ParseLoss(line),
                 .values = record::ParseValues(line)};
    sign.redrawn = stream.tracker.loss_of_step() ? LogSign::Redrawn::kOfStep : LogSign::Redrawn::kNewest;
    if (sign.loss || sign.values != record::ProgressValues()) each(sign);
    return;
  }
  if (!progress && !indented) stream.expects_loss = false;
  if (!progress && !stream.expects_loss) return;
  LogSign sign{.rank = rank, .state = stream.tracker.state()};
  if (!sign.state.of_training && !progress) return;
  any_ = true;
  // A loss without a step (Trainer's dictionaries) belongs to the step last seen; that of an evaluation's bar is none.
  if (sign.state.of_training) sign.loss = record::ParseLoss(line);
  if (sign.state.of_training) sign.values = record::ParseValues(line);
  if (!progress) sign.state.seconds_per_step = record::ParseSpeed(line);
  if (sign.state.of_training && progress) sign.stamp = StampOf(line);
  const bool bar = sign.state.grammar == record::ProgressGrammar::kBar;
  if (progress) stream.expects_loss = sign.state.of_training && !bar && !sign.loss;
  each(sign);
}

void LogProgress::SkipToHistory() { tail_.SkipToLast(kHistoryLines, kHistoryBytes); }

double LogProgress::Read(const std::function<void(const LogSign&)>& each) {
  struct stat info{};
  const bool there = ::stat(tail_.path().c_str(), &info) == 0;
  const double modified =
      there ? static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec)
            : UnixSeconds();
  // Of a thousand logs, most have nothing new at a look.
  if (part_ >= 1 && there && info.st_ino == inode_ && info.st_size == size_ && modified == modified_) return modified;
  inode_ = there ? info.st_ino : 0;
  size_ = info.st_size;
  modified_ = modified;
  if (!whole_) whole_ = std::max<size_t>(1, tail_.Remaining());
  bool more = true;
  for (size_t total = 0, before = partial_.size(); total < kBytesAtOnce && (more = tail_.Read(&partial_));
       before = partial_.size()) {
    total += partial_.size() - before;
    size_t begin = 0;
    for (size_t end; (end = partial_.find_first_of("\n\r", begin)) != std::string::npos; begin = end + 1) {
      Line(std::string_view(partial_).substr(begin, end - begin), each);
    }
    if (begin > 0) redrawn_ = partial_[begin - 1] == '\r';
    partial_.erase(0, begin);
    if (partial_.size() > kLongestLine) partial_.clear();
  }
  // tqdm writes the carriage return before each state of a bar: the newest one has no end yet.
  if (!more && redrawn_ && partial_.find_last_not_of(' ') != std::string::npos &&
      partial_[partial_.find_last_not_of(' ')] == ']') {
    Line(partial_, each);
  }
  const double left = more ? static_cast<double>(tail_.Remaining()) : 0;
  part_ = left > 0 ? std::clamp(1 - left / static_cast<double>(*whole_), 0.0, 0.99) : 1;
  return modified;
}

}  // namespace lockstep::watch
