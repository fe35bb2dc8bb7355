#include "record/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "base/json.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

constexpr size_t kLongestName = 1024;
constexpr size_t kLongestForeignLine = 1u << 20;

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

void AppendNumber(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("\"nan\"");
  } else if (std::isinf(value)) {
    out->append(value > 0 ? "\"inf\"" : "\"-inf\"");
  } else {
    fmt::format_to(std::back_inserter(*out), "{}", value);
  }
}

// Numbers, and the three strings that stand for what JSON cannot say.
std::optional<double> ReadNumber(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

int SmallInt(const json& object, std::string_view key) {
  return static_cast<int>(std::clamp<int64_t>(GetInt(object, key), 0, std::numeric_limits<int>::max()));
}

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
  json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  MetricLine line;
  line.t = GetNumber(object, "t");
  line.attempt = SmallInt(object, "attempt");
  line.rank = SmallInt(object, "rank");
  if (const int64_t step = GetInt(object, "step", -1); step >= 0) line.step = static_cast<uint64_t>(step);
  auto scalars = object.find("scalars");
  if (scalars != object.end() && scalars->is_object()) {
    line.scalars.reserve(scalars->size());
    for (auto it = scalars->begin(); it != scalars->end(); ++it) {
      if (std::optional<double> value = ReadNumber(it.value())) line.scalars.emplace_back(it.key(), *value);
    }
  }
  return line;
}

void MetricFollower::Line(std::string_view text, const std::function<void(const MetricLine&)>& each) {
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  if (std::optional<MetricLine> line = ParseMetricLine(text)) {
    each(*line);
  } else {
    ++bad_lines_;
  }
}

bool MetricFollower::Read(const std::function<void(const MetricLine&)>& each, size_t max_bytes) {
  UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (!seen_ || info.st_ino != inode_ || info.st_size < offset_) {
    inode_ = info.st_ino;
    offset_ = 0;
    partial_.clear();
    skipping_ = false;
    if (!seen_ && last_bytes_ && info.st_size > static_cast<off_t>(*last_bytes_)) {
      offset_ = info.st_size - static_cast<off_t>(*last_bytes_);
      skipping_ = true;
    }
    seen_ = true;
  }
  if (::lseek(fd.get(), offset_, SEEK_SET) != offset_) return false;
  char buffer[64 << 10];
  for (size_t total = 0; total < max_bytes;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    offset_ += n;
    total += static_cast<size_t>(n);
    std::string_view rest(buffer, static_cast<size_t>(n));
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      if (skipping_) {
        skipping_ = false;
      } else if (partial_.empty()) {
        Line(rest.substr(0, end), each);
      } else {
        partial_.append(rest.substr(0, end));
        Line(partial_, each);
      }
      partial_.clear();
    }
    if (skipping_) continue;
    partial_.append(rest);
    if (partial_.size() > kLongestForeignLine) {
      ++bad_lines_;
      skipping_ = true;
      partial_.clear();
    }
  }
  return true;
}

}  // namespace lockstep::record
