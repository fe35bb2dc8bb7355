#include "track/points.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::track {
namespace {

// Means over windows of up to 2 * half + 1 values; near the ends they shrink on both sides alike.
std::vector<double> BoxMean(const std::vector<double>& values, size_t half) {
  std::vector<double> sums(values.size() + 1);
  for (size_t i = 0; i < values.size(); ++i) sums[i + 1] = sums[i] + values[i];
  std::vector<double> means(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t reach = std::min({half, i, values.size() - 1 - i});
    means[i] = (sums[i + reach + 1] - sums[i - reach]) / static_cast<double>(2 * reach + 1);
  }
  return means;
}

}  // namespace

double Percentile(std::vector<float> values, double part) {
  std::erase_if(values, [](float value) { return !std::isfinite(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double rank = std::ceil(std::clamp(part, 0.0, 1.0) * static_cast<double>(values.size()));
  const auto at = static_cast<ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

ValueRange TypicalRange(const Points& points) {
  std::vector<double> values;
  for (const Point& point : points) {
    if (std::isfinite(point.y)) values.push_back(point.y);
  }
  ValueRange range;
  if (values.empty()) return range;
  std::sort(values.begin(), values.end());
  const size_t cut = values.size() / 50;
  const double low = values[cut], high = values[values.size() - 1 - cut];
  const double room = high / 2 - low / 2;
  range.Add(std::max(values.front(), low - room));
  range.Add(std::min(values.back(), high + room));
  return range;
}

Points Smooth(const Points& points, const ValueRange& typical, size_t reach) {
  std::vector<double> values;
  for (const Point& point : points) {
    if (std::isfinite(point.y)) values.push_back(std::clamp(point.y, typical.low, typical.high));
  }
  const std::vector<double> means = BoxMean(BoxMean(values, reach), reach);
  Points smooth = points;
  size_t next = 0;
  for (Point& point : smooth) {
    if (std::isfinite(point.y)) point.y = means[next++];
  }
  return smooth;
}

Points Thin(const Points& points, size_t columns) {
  if (points.size() <= 4 * columns || columns == 0) return points;
  ValueRange range;
  for (const Point& point : points) range.Add(point.x);
  const double width = (range.high - range.low) / static_cast<double>(columns);
  const auto column = [&](const Point& point) {
    return width > 0 ? std::min<double>(std::floor((point.x - range.low) / width), static_cast<double>(columns) - 1)
                     : 0.0;
  };
  const auto whole = [](const Point& point) { return std::isfinite(point.x) && std::isfinite(point.y); };
  Points thin;
  for (size_t i = 0; i < points.size();) {
    if (!whole(points[i])) {
      if (thin.empty() || whole(thin.back())) thin.push_back(points[i]);
      ++i;
      continue;
    }
    const size_t begin = i;
    size_t low = i, high = i;
    for (; i < points.size() && whole(points[i]) && column(points[i]) == column(points[begin]); ++i) {
      if (points[i].y < points[low].y) low = i;
      if (points[i].y > points[high].y) high = i;
    }
    size_t kept[] = {begin, std::min(low, high), std::max(low, high), i - 1};
    for (size_t k = 0; k < 4; ++k) {
      if (k == 0 || kept[k] != kept[k - 1]) thin.push_back(points[kept[k]]);
    }
  }
  return thin;
}

}  // namespace lockstep::track
