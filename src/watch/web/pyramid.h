// The curves of one rank at every zoom: metric lines -> a pyramid file -> the few thousand numbers that a chart draws.
// Reads on where it stopped, in slices, so that one thread can serve and build; follows rewinds (the later attempt
// wins); memory does not grow with the run. One thread.
//
//   Result<Pyramid> pyramid = Pyramid::Open(run, 0);
//   while (pyramid->Advance(Millis(30))) Show(pyramid->progress());
//   Curve curve = pyramid->Query("loss", {.points = 800});
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "record/metric_scan.h"
#include "watch/web/pyramid_file.h"

namespace lockstep::watch {

struct CurveQuestion {
  bool by_time = false;  // x is the time instead of the step
  double from = -1e300, to = 1e300;
  size_t points = 1000;  // at most about so many; all that are there where they are fewer
};

struct CurvePoint {
  double x = 0, low = 0, high = 0, mean = 0;
  uint64_t step = 0;
  double t = 0;
  uint32_t values = 0, not_finite = 0;
};

struct Curve {
  int level = 0;                   // -1: single values
  double first_x = 0, last_x = 0;  // of everything
  std::vector<CurvePoint> points;
};

class Pyramid {
 public:
  static Result<Pyramid> Open(const std::string& run_path, int rank);

  // Reads new metric lines for about so long; true when there are more. Lines that do not parse are counted.
  bool Advance(Millis limit);
  // Writes what was read to the file; at the end, and from time to time by Advance.
  Status Save();

  double progress() const;  // 0 to 1, of the file as it was at the last look
  uint64_t lines() const { return state_.lines; }
  uint64_t bad_lines() const { return state_.bad_lines; }
  const Status& error() const { return error_; }  // of the disk; charts then end where it began
  std::vector<std::string> names() const;
  bool shared() const { return file_ ? file_->shared() : true; }

  // Nothing for a name that is not there.
  std::optional<Curve> Query(std::string_view name, const CurveQuestion& question) const;

 private:
  struct Value {
    uint64_t step = 0;
    double t = 0, value = 0;
    uint64_t offset = 0, bytes = 0;  // of its line
  };
  struct Series {
    std::vector<Value> open;                     // of the next bucket of level 0
    std::array<Bucket, kMostLevels> group{};     // of level k: what was joined of k - 1 so far
    std::array<uint32_t, kMostLevels> joined{};  // buckets in it
    std::optional<uint64_t> last_step;
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  Pyramid(std::string source, std::string path) : source_(std::move(source)), path_(std::move(path)) {}
  UniqueFd OpenSource() const;
  Status Identify(int source);
  void Restore(size_t id);
  void Line(std::string_view text, uint64_t offset);
  void Take(const record::ScannedLine& line, uint64_t offset, uint64_t bytes);
  void Add(size_t id, const Value& value);
  void Close(size_t id);
  void Push(size_t id, const Bucket& bucket);
  void CutFrom(size_t id, uint64_t step);
  size_t Find(std::string_view name);
  // The values of a bucket, from its lines.
  std::vector<Value> ReadValues(std::string_view name, const Bucket& span) const;
  // The first bucket of a level that ends at x or behind; with `begin`, that begins behind x.
  uint64_t FirstAt(size_t id, size_t level, const CurveQuestion& question, bool begin) const;
  // The values of several buckets; false when that is more than one chart is worth.
  bool Single(size_t id, const std::vector<Bucket>& buckets, std::vector<Value>* out) const;
  static Bucket Whole(std::span<const Value> values);

  std::string source_, path_;
  uint64_t size_ = 0;  // of the source, at the last look
  std::optional<PyramidFile> file_;
  PyramidState state_;
  uint64_t saved_at_ = 0;  // offset of the last Commit
  std::string buffer_;
  bool skipping_ = false;  // inside a line that is too long
  record::ScannedLine scanned_;
  std::vector<Series> series_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> ids_;
  std::vector<size_t> expected_;  // series of the line before, in order: names rarely change
  Status error_;
};

}  // namespace lockstep::watch
