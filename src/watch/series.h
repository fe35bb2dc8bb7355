// One curve in a fixed amount of memory, however long the run: neighbouring steps share a bucket with their mean, least
// and greatest value, and buckets are joined in pairs when there are too many. Steps that a restart repeats replace
// what was there. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::watch {

struct SeriesPoint {
  uint64_t step = 0;  // first of the bucket
  double sum = 0;
  uint64_t count = 0;
  double low = 0, high = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

class Series {
 public:
  explicit Series(size_t most_points = 1024) : most_(most_points < 4 ? 4 : most_points) {}

  // Values that are not finite are left out. A step before the last one is a restart: what was from there on is gone.
  void Add(uint64_t step, double value);
  // A better value of the step that was added last.
  void Replace(uint64_t step, double value);
  // Forgets this step and everything after it.
  void Rewind(uint64_t step);

  const std::vector<SeriesPoint>& points() const { return points_; }

 private:
  size_t most_;
  uint64_t width_ = 1;  // steps per bucket
  uint64_t last_step_ = 0;
  std::vector<SeriesPoint> points_;
  std::optional<SeriesPoint> before_;  // the last point without the last value; count 0: it had no other
};

}  // namespace lockstep::watch
