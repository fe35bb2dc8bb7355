// Metric lines (docs/formats/metrics.md): written, parsed, and read from a file that is still growing. The functions
// are pure; a MetricFollower belongs to one thread and needs no cooperation of the writer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::record {

inline constexpr size_t kLongestMetricLine = 64u << 10;  // with its newline

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

// Reads what has been appended since the last call. A file that is not there yet, shrank or was replaced is no error.
// No file stays open in between: a thousand ranks are more than a process may hold.
class MetricFollower {
 public:
  explicit MetricFollower(std::string path) : path_(std::move(path)) {}

  // Calls with every complete new line, at most about max_bytes of them; true when there is more to read now.
  bool Read(const std::function<void(const MetricLine&)>& each, size_t max_bytes = 16u << 20);

  // Leaves out all but the last so many bytes (whole lines) of what is there at the first Read.
  void SkipToLast(size_t bytes) { last_bytes_ = bytes; }

  uint64_t bad_lines() const { return bad_lines_; }  // torn or foreign
  // The last line carries no newline: its writer is at it, or was killed.
  bool torn_tail() const { return !partial_.empty(); }
  const std::string& path() const { return path_; }

 private:
  void Line(std::string_view text, const std::function<void(const MetricLine&)>& each);

  std::string path_;
  bool seen_ = false;
  ino_t inode_ = 0;
  off_t offset_ = 0;
  std::optional<size_t> last_bytes_;
  std::string partial_;
  bool skipping_ = false;  // inside a line that is too long to be one
  uint64_t bad_lines_ = 0;
};

}  // namespace lockstep::record
