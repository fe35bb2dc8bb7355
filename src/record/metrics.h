// Metric lines (docs/formats/metrics.md): written, parsed, and read from a file that is still growing. The functions
// are pure; a MetricFollower belongs to one thread and needs no cooperation of the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/line_follower.h"

namespace lockstep::record {

inline constexpr size_t kLongestMetricLine = 64u << 10;  // with its newline

struct ScannedLine;

struct MetricLine {
  double t = 0;  // seconds since 1970
  int attempt = 0;
  int rank = 0;
  std::optional<uint64_t> step;  // foreign programs may leave it out
  std::vector<std::pair<std::string, double>> scalars;

  std::optional<double> Find(std::string_view name) const;
};

// Appends the line, newline included, to out; more than one, with the same step, where one would be too long. A name
// that alone is too long is cut.
void AppendMetricLine(const MetricLine& line, std::string* out);

// One line without its newline; nothing when it is no JSON object. Scalars that are no numbers are left out.
std::optional<MetricLine> ParseMetricLine(std::string_view text);

// Reads what has been appended since the last call (line_follower.h).
class MetricFollower {
 public:
  explicit MetricFollower(std::string path) : lines_(std::move(path)) {}

  // Calls with every complete new line, at most about max_bytes of them; true when there is more to read now.
  bool Read(const std::function<void(const MetricLine&)>& each, size_t max_bytes = 16u << 20);
  // The same with views (metric_scan.h), valid during the call.
  bool Scan(const std::function<void(const ScannedLine&)>& each, size_t max_bytes = 16u << 20);

  // Leaves out all but the last so many bytes (whole lines) of what is there at the first Read.
  void SkipToLast(size_t bytes) { lines_.SkipToLast(bytes); }

  // Of what was appended between two calls, only the last so many bytes (whole lines) are read.
  void MostAtOnce(size_t bytes) { lines_.MostAtOnce(bytes); }

  uint64_t bad_lines() const { return lines_.bad_lines(); }
  bool torn_tail() const { return lines_.torn_tail(); }
  const std::string& path() const { return lines_.path(); }

 private:
  LineFollower lines_;
};

}  // namespace lockstep::record
