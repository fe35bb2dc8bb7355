#include "record/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "record/json_number.h"
#include "record/metric_scan.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 1024;

// A JSON string. Plain names, which are nearly all, need no escaping and no allocation.
void AppendName(std::string_view name, std::string* out) {
  name = name.substr(0, kLongestName);
  const bool plain =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c < 0x7f && c != '"' && c != '\\'; });
  if (plain) {
    out->append(1, '"').append(name).append(1, '"');
  } else {
    out->append(ToJsonLine(json(std::string(name))));
  }
}

// Takes the fields of a metric line as the parser meets them: no document is built. A thousand ranks write as many
// lines a second, and who watches them shall not be noticed.
class LineTaker final : public nlohmann::json_sax<json> {
 public:
  explicit LineTaker(MetricLine* line) : line_(line) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    Integer(value);
    return Number(static_cast<double>(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    Integer(static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max())));
    return Number(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override {
    // Python writes "5.0" for what was once a float.
    if (std::trunc(value) == value && std::abs(value) < 9e18) Integer(static_cast<int64_t>(value));
    return Number(value);
  }
  bool string(string_t& value) override {
    if (!InScalars()) return true;
    if (const std::optional<double> number = ReadNumber(json(value))) line_->scalars.emplace_back(name_, *number);
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override {
    if (depth_ == 0) return false;  // no object
    return Open();
  }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override {
    if (depth_ == 1) {
      key_ = value == "t"         ? Key::kTime
             : value == "attempt" ? Key::kAttempt
             : value == "rank"    ? Key::kRank
             : value == "step"    ? Key::kStep
             : value == "scalars" ? Key::kScalars
                                  : Key::kOther;
    } else if (InScalars()) {
      name_ = value;
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  bool whole() const { return closed_; }

 private:
  enum class Key { kOther, kTime, kAttempt, kRank, kStep, kScalars };

  bool InScalars() const { return depth_ == 2 && key_ == Key::kScalars; }
  bool Open() {
    ++depth_;
    return true;
  }
  bool Close() {
    closed_ = --depth_ == 0;
    return true;
  }
  bool Number(double value) {
    if (depth_ == 0) return false;
    if (depth_ == 1 && key_ == Key::kTime) line_->t = value;
    if (InScalars()) line_->scalars.emplace_back(name_, value);
    return true;
  }
  void Integer(int64_t value) {
    if (depth_ != 1) return;
    const int small = static_cast<int>(std::clamp<int64_t>(value, 0, std::numeric_limits<int>::max()));
    if (key_ == Key::kAttempt) line_->attempt = small;
    if (key_ == Key::kRank) line_->rank = small;
    if (key_ == Key::kStep && value >= 0) line_->step = static_cast<uint64_t>(value);
  }

  MetricLine* line_;
  int depth_ = 0;
  Key key_ = Key::kOther;
  std::string name_;
  bool closed_ = false;
};

}  // namespace

std::optional<double> MetricLine::Find(std::string_view name) const {
  for (const auto& [key, value] : scalars) {
    if (key == name) return value;
  }
  return std::nullopt;
}

void AppendMetricLine(const MetricLine& line, std::string* out) {
  size_t next = 0;
  do {
    const size_t begin = out->size();
    fmt::format_to(std::back_inserter(*out), "{{\"t\": {:.3f}, \"attempt\": {}, \"rank\": {}, ", line.t, line.attempt,
                   line.rank);
    if (line.step) fmt::format_to(std::back_inserter(*out), "\"step\": {}, ", *line.step);
    out->append("\"scalars\": {");
    for (bool first = true; next < line.scalars.size(); ++next, first = false) {
      const size_t before = out->size();
      if (!first) out->append(", ");
      AppendName(line.scalars[next].first, out);
      out->append(": ");
      AppendNumber(line.scalars[next].second, out);
      if (!first && out->size() - begin + 3 > kLongestMetricLine) {
        out->resize(before);
        break;
      }
    }
    out->append("}}\n");
  } while (next < line.scalars.size());
}

std::optional<MetricLine> ParseMetricLine(std::string_view text) {
  ScannedLine scanned;
  scanned.scalars.reserve(32);
  if (!ScanMetricLine(text, &scanned)) return ParseAnyMetricLine(text);
  MetricLine line{scanned.t, scanned.attempt, scanned.rank, scanned.step, {}};
  line.scalars.assign(scanned.scalars.begin(), scanned.scalars.end());
  return line;
}

std::optional<MetricLine> ParseAnyMetricLine(std::string_view text) {
  MetricLine line;
  line.scalars.reserve(16);
  LineTaker taker(&line);
  if (!json::sax_parse(text, &taker) || !taker.whole()) return std::nullopt;
  return line;
}

bool MetricFollower::Read(const std::function<void(const MetricLine&)>& each, size_t max_bytes) {
  return lines_.Read(
      [&](std::string_view text) {
        const std::optional<MetricLine> line = ParseMetricLine(text);
        if (line) each(*line);
        return line.has_value();
      },
      max_bytes);
}

bool MetricFollower::Scan(const std::function<void(const ScannedLine&)>& each, size_t max_bytes) {
  ScannedLine line;
  line.scalars.reserve(32);
  MetricLine parsed;
  return lines_.Read(
      [&](std::string_view text) {
        if (!ReadMetricLine(text, &line, &parsed)) return false;
        each(line);
        return true;
      },
      max_bytes);
}

}  // namespace lockstep::record
