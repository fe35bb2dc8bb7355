#include "watch/web/pyramid.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>

#include "base/checksum.h"
#include "base/files.h"
#include "record/metrics.h"

namespace lockstep::watch {
namespace {

constexpr uint64_t kBucketValues = 64, kBucketBytes = 128u << 10;
constexpr uint64_t kSliceBytes = 1u << 20;     // read at once; a longer line is none
constexpr size_t kKeptBytes = 64u << 10;       // for the next read, when everything has been read
constexpr uint64_t kSaveEvery = 16u << 20;     // bytes of metric lines
constexpr uint64_t kMostSpanBytes = 4u << 20;  // read for the single values of one chart
constexpr size_t kMostNames = 2000;            // series of one rank

size_t ReadAt(int fd, char* data, size_t bytes, uint64_t place) {
  size_t total = 0;
  while (total < bytes) {
    const ssize_t n = ::pread(fd, data + total, bytes - total, static_cast<off_t>(place + total));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    total += static_cast<size_t>(n);
  }
  return total;
}

double XOf(const Bucket& bucket, bool by_time, bool end) {
  if (by_time) return end ? bucket.last_t : bucket.first_t;
  return static_cast<double>(end ? bucket.last_step : bucket.first_step);
}

CurvePoint PointOf(const Bucket& bucket, bool by_time) {
  CurvePoint point;
  point.x = (XOf(bucket, by_time, false) + XOf(bucket, by_time, true)) / 2;
  point.step = bucket.last_step;
  point.t = bucket.last_t;
  point.values = bucket.values();
  point.not_finite = bucket.not_finite;
  const double none = std::numeric_limits<double>::quiet_NaN();
  point.low = bucket.count > 0 ? bucket.low : none;
  point.high = bucket.count > 0 ? bucket.high : none;
  point.mean = bucket.count > 0 ? bucket.sum / bucket.count : none;
  return point;
}

}  // namespace

Result<Pyramid> Pyramid::Open(const std::string& run_path, int rank) {
  Pyramid pyramid(fmt::format("{}/metrics/rank-{}.jsonl", run_path, rank),
                  fmt::format("{}/pyramid/rank-{}.pyr", run_path, rank));
  pyramid.Advance(Millis(0));
  if (!pyramid.error_.ok()) return pyramid.error_;
  return pyramid;
}

UniqueFd Pyramid::OpenSource() const { return UniqueFd(::open(source_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)); }

// Finds or begins the file that belongs to the source. Without a whole first line there is nothing to belong to yet.
Status Pyramid::Identify(int source) {
  buffer_.resize(std::min<uint64_t>(kSliceBytes, size_));
  const size_t n = ReadAt(source, buffer_.data(), buffer_.size(), 0);
  const size_t end = std::string_view(buffer_.data(), n).find('\n');
  if (end == std::string::npos && n < kSliceBytes) return Status::Ok();
  const uint64_t sum = Checksum64(buffer_.data(), end == std::string::npos ? n : end + 1);
  Result<PyramidFile> file = PyramidFile::Open(path_, sum, size_);
  if (!file.ok()) return file.status();
  file_ = std::move(*file);
  state_ = file_->state();
  saved_at_ = state_.offset;
  series_.assign(file_->names().size(), {});
  ids_.clear();
  expected_.clear();
  for (size_t id = 0; id < series_.size(); ++id) {
    ids_.emplace(file_->names()[id], id);
    Restore(id);
  }
  return Status::Ok();
}

void Pyramid::Restore(size_t id) {
  Series& series = series_[id];
  for (size_t level = 1; level < kMostLevels; ++level) {
    series.group[level] = Bucket();
    std::vector<Bucket> tail;
    const uint64_t begin = file_->Count(id, level) * kBucketFan;
    if (Status read = file_->Read(id, level - 1, begin, begin + kBucketFan, &tail); !read.ok()) error_ = read;
    for (const Bucket& bucket : tail) series.group[level].Join(bucket);
    series.joined[level] = static_cast<uint32_t>(tail.size());
  }
  series.last_step.reset();
  const uint64_t count = file_->Count(id, 0);
  if (count > 0) series.last_step = file_->At(id, 0, count - 1).last_step;
  if (!series.open.empty()) series.last_step = series.open.back().step;
}

bool Pyramid::Advance(Millis limit) {
  if (!error_.ok()) return false;
  const UniqueFd source = OpenSource();
  struct stat info{};
  if (!source || ::fstat(source.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  size_ = static_cast<uint64_t>(info.st_size);
  if (file_ && size_ < state_.offset) file_.reset();  // it was replaced
  if (!file_) {
    if (error_ = Identify(source.get()); !error_.ok() || !file_) return false;
  }
  const TimePoint until = Now() + limit;
  while (state_.offset < size_) {
    buffer_.resize(std::min(kSliceBytes, size_ - state_.offset));
    const size_t n = ReadAt(source.get(), buffer_.data(), buffer_.size(), state_.offset);
    std::string_view rest(buffer_.data(), n);
    const uint64_t before = state_.offset;
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      if (!std::exchange(skipping_, false)) Line(rest.substr(0, end), state_.offset);
      state_.offset += end + 1;
    }
    if (rest.size() == kSliceBytes) {
      state_.bad_lines += skipping_ ? 0 : 1;
      skipping_ = true;
      state_.offset += rest.size();
    }
    if (state_.offset - saved_at_ >= kSaveEvery) {
      if (error_ = Save(); !error_.ok()) return false;
    }
    if (state_.offset == before) return false;  // half of a line
    if (Now() >= until) return state_.offset < size_;
  }
  if (buffer_.capacity() > kKeptBytes) std::string().swap(buffer_);  // there may be a pyramid for each of many ranks
  return false;
}

Status Pyramid::Save() {
  if (!file_ || state_.offset == saved_at_) return Status::Ok();
  for (size_t id = 0; id < series_.size(); ++id) Close(id);
  saved_at_ = state_.offset;
  return file_->Commit(state_);
}

double Pyramid::progress() const {
  return size_ == 0 ? 1 : std::min(1.0, static_cast<double>(state_.offset) / static_cast<double>(size_));
}

std::vector<std::string> Pyramid::names() const { return file_ ? file_->names() : std::vector<std::string>(); }

void Pyramid::Line(std::string_view text, uint64_t offset) {
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  record::MetricLine parsed;
  if (ReadMetricLine(text, &scanned_, &parsed)) {
    ++state_.lines;
    Take(scanned_, offset, text.size() + 1);
  } else {
    ++state_.bad_lines;
  }
}

void Pyramid::Take(const record::ScannedLine& line, uint64_t offset, uint64_t bytes) {
  const auto attempt = static_cast<uint64_t>(line.attempt);
  if (!line.step || attempt < state_.attempt) return;
  if (attempt > state_.attempt) {
    state_.attempt = attempt;
    for (size_t id = 0; id < series_.size(); ++id) CutFrom(id, *line.step);
  }
  size_t position = 0;
  for (const auto& [name, value] : line.scalars) {
    size_t id = kMostNames;
    if (position < expected_.size() && file_->names()[expected_[position]] == name) {
      id = expected_[position];
    } else {
      id = Find(name);
      if (id == kMostNames) continue;
      expected_.resize(std::max(expected_.size(), position + 1), id);
      expected_[position] = id;
    }
    ++position;
    Add(id, {*line.step, line.t, value, offset, bytes});
  }
}

size_t Pyramid::Find(std::string_view name) {
  const auto known = ids_.find(name);
  if (known != ids_.end()) return known->second;
  if (series_.size() >= kMostNames || name.empty() || name.size() > 1024) return kMostNames;
  const size_t id = file_->AddSeries(name);
  series_.emplace_back();
  ids_.emplace(name, id);
  return id;
}

void Pyramid::Add(size_t id, const Value& value) {
  Series& series = series_[id];
  if (series.last_step && value.step <= *series.last_step) CutFrom(id, value.step);
  if (!series.open.empty() &&
      (series.open.size() >= kBucketValues || value.offset + value.bytes - series.open.front().offset > kBucketBytes)) {
    Close(id);
  }
  if (series.open.capacity() == 0) series.open.reserve(4);
  series.open.push_back(value);
  series.last_step = value.step;
}

Bucket Pyramid::Whole(std::span<const Value> values) {
  Bucket whole;
  for (const Value& value : values) {
    const bool finite = std::isfinite(value.value);
    const double number = finite ? value.value : 0;
    whole.Join({value.step, value.step, value.t, value.t, value.offset, value.bytes, finite ? 1u : 0u, finite ? 0u : 1u,
                number, number, number});
  }
  return whole;
}

void Pyramid::Close(size_t id) {
  Series& series = series_[id];
  if (series.open.empty()) return;
  Push(id, Whole(series.open));
  series.open.clear();
}

void Pyramid::Push(size_t id, const Bucket& bucket) {
  Series& series = series_[id];
  file_->Append(id, 0, bucket);
  Bucket below = bucket;
  for (size_t level = 1; level < kMostLevels; ++level) {
    series.group[level].Join(below);
    if (++series.joined[level] < kBucketFan) return;
    below = series.group[level];
    file_->Append(id, level, below);
    series.group[level] = Bucket();
    series.joined[level] = 0;
  }
}

void Pyramid::CutFrom(size_t id, uint64_t step) {
  Series& series = series_[id];
  while (!series.open.empty() && series.open.back().step >= step) series.open.pop_back();
  if (!series.open.empty() || !series.last_step || *series.last_step < step) {
    Restore(id);
    return;
  }
  const CurveQuestion at{.from = static_cast<double>(step)};
  const uint64_t keep = FirstAt(id, 0, at, false);
  if (keep < file_->Count(id, 0)) {
    const Bucket divided = file_->At(id, 0, keep);
    file_->Cut(id, keep);
    if (divided.first_step < step) {
      series.open = ReadValues(file_->names()[id], divided);
      std::erase_if(series.open, [&](const Value& value) { return value.step >= step; });
    }
  }
  Restore(id);
}

std::vector<Pyramid::Value> Pyramid::ReadValues(std::string_view name, const Bucket& span) const {
  std::vector<Value> values;
  const UniqueFd source = OpenSource();
  if (!source || span.bytes > kMostSpanBytes + kSliceBytes) return values;
  std::string text(span.bytes, 0);
  text.resize(ReadAt(source.get(), text.data(), text.size(), span.offset));
  record::ScannedLine line;
  record::MetricLine parsed;
  int attempt = 0;
  uint64_t offset = span.offset;
  std::string_view rest = text;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1), offset += end + 1) {
    if (!ReadMetricLine(rest.substr(0, end), &line, &parsed) || !line.step || line.attempt < attempt) continue;
    const auto cut = [&] {
      while (!values.empty() && values.back().step >= *line.step) values.pop_back();
    };
    if (line.attempt > attempt) cut();
    attempt = line.attempt;
    for (const auto& [key, value] : line.scalars) {
      if (key != name) continue;
      cut();
      if (*line.step >= span.first_step && *line.step <= span.last_step) {
        values.push_back({*line.step, line.t, value, offset, end + 1});
      }
    }
  }
  return values;
}

uint64_t Pyramid::FirstAt(size_t id, size_t level, const CurveQuestion& question, bool begin) const {
  uint64_t low = 0, high = file_->Count(id, level);
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const Bucket bucket = file_->At(id, level, middle);
    const bool before = begin ? XOf(bucket, question.by_time, false) <= question.to
                              : XOf(bucket, question.by_time, true) < question.from;
    (before ? low : high) = before ? middle + 1 : middle;
  }
  return low;
}

bool Pyramid::Single(size_t id, const std::vector<Bucket>& buckets, std::vector<Value>* out) const {
  uint64_t bytes = 0;
  for (const Bucket& bucket : buckets) bytes += bucket.values() > 1 ? bucket.bytes : 0;
  if (bytes > kMostSpanBytes) return false;
  for (const Bucket& bucket : buckets) {
    if (bucket.values() == 1 && bucket.count == 1) {
      out->push_back({bucket.first_step, bucket.first_t, bucket.sum, bucket.offset, bucket.bytes});
      continue;
    }
    const std::vector<Value> values = ReadValues(file_->names()[id], bucket);
    out->insert(out->end(), values.begin(), values.end());
  }
  return true;
}

std::optional<Curve> Pyramid::Query(std::string_view name, const CurveQuestion& question) const {
  const auto known = ids_.find(name);
  if (!file_ || known == ids_.end()) return std::nullopt;
  const size_t id = known->second;
  const Series& series = series_[id];
  const Bucket open = Whole(series.open);
  Curve curve;
  const uint64_t total = file_->Count(id, 0);
  if (total == 0 && open.values() == 0) return curve;
  curve.first_x = XOf(total > 0 ? file_->At(id, 0, 0) : open, question.by_time, false);
  curve.last_x = XOf(open.values() > 0 ? open : file_->At(id, 0, total - 1), question.by_time, true);

  const size_t most = std::clamp<size_t>(question.points, 16, 20'000);
  size_t level = 0;
  uint64_t begin = 0, end = 0;
  for (; level < kMostLevels; ++level) {
    // One bucket more on either side, so that a line reaches the edges of the chart.
    begin = FirstAt(id, level, question, false);
    end = std::max(FirstAt(id, level, question, true), begin);
    begin -= begin > 0 ? 1 : 0;
    end = std::min(end + 1, file_->Count(id, level));
    if (end - begin <= most || level + 1 == kMostLevels) break;
  }
  std::vector<Bucket> buckets;
  if (!file_->Read(id, level, begin, end, &buckets).ok()) return curve;
  const bool to_end = end == file_->Count(id, level);
  curve.level = static_cast<int>(level);
  std::vector<Value> values;
  // Few buckets: their values, in groups where even these are more than asked for.
  if (level == 0 && 2 * buckets.size() < most && Single(id, buckets, &values)) {
    if (to_end) values.insert(values.end(), series.open.begin(), series.open.end());
    const size_t each = (values.size() + most - 1) / most;
    curve.level = each <= 1 ? -1 : 0;
    for (size_t i = 0; i < values.size(); i += each) {
      const std::span<const Value> group(values.data() + i, std::min(each, values.size() - i));
      curve.points.push_back(PointOf(Whole(group), question.by_time));
    }
    return curve;
  }
  if (to_end) {
    for (size_t above = level; above > 0; --above) {
      if (series.joined[above] > 0) buckets.push_back(series.group[above]);
    }
    if (open.values() > 0) buckets.push_back(open);
  }
  for (const Bucket& bucket : buckets) curve.points.push_back(PointOf(bucket, question.by_time));
  return curve;
}

}  // namespace lockstep::watch
