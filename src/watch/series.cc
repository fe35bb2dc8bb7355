#include "watch/series.h"

#include <algorithm>
#include <cmath>

namespace lockstep::watch {

void Series::Rewind(uint64_t step) {
  while (!points_.empty() && points_.back().step >= step) points_.pop_back();
}

void Series::Replace(uint64_t step, double value) {
  if (step == last_step_ && before_ && !points_.empty()) {
    if (before_->count > 0) {
      points_.back() = *before_;
    } else {
      points_.pop_back();
    }
  }
  Add(step, value);
}

void Series::Add(uint64_t step, double value) {
  if (step < last_step_) Rewind(step);
  last_step_ = step;
  before_.reset();
  if (!std::isfinite(value)) return;
  const uint64_t begin = step - step % width_;
  if (points_.empty() || points_.back().step < begin) {
    before_.emplace();
    points_.push_back({.step = begin, .sum = value, .count = 1, .low = value, .high = value});
  } else {
    SeriesPoint& point = points_.back();
    before_ = point;
    point.sum += value;
    ++point.count;
    point.low = std::min(point.low, value);
    point.high = std::max(point.high, value);
  }
  while (points_.size() > most_) {
    before_.reset();
    width_ *= 2;
    std::vector<SeriesPoint> joined;
    joined.reserve(points_.size() / 2 + 1);
    for (const SeriesPoint& point : points_) {
      const uint64_t at = point.step - point.step % width_;
      if (joined.empty() || joined.back().step < at) {
        joined.push_back(point);
        joined.back().step = at;
        continue;
      }
      SeriesPoint& into = joined.back();
      into.sum += point.sum;
      into.count += point.count;
      into.low = std::min(into.low, point.low);
      into.high = std::max(into.high, point.high);
    }
    points_ = std::move(joined);
  }
}

}  // namespace lockstep::watch
