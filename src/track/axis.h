// One axis of a plot: the range of its values, linear or logarithmic, and where its ticks and numbers stand. Pure
// functions, any thread.
#pragma once

#include <string>
#include <vector>

namespace lockstep::track {

struct Axis {
  double low = 0, high = 1;  // low < high; of a logarithmic axis both are positive
  bool log = false;

  // 0 at low, 1 at high. Below the range of a logarithmic axis: minus infinity from zero down.
  double Part(double value) const;
};

// What an axis has to show. Values that are not finite do not count.
struct ValueRange {
  double low = 1, high = 0;  // low > high: nothing yet
  bool empty() const { return !(low <= high); }
  void Add(double value);
  void Add(const ValueRange& other);
};

// Never empty, also for no value or one. Logarithmic where allowed, all values are positive and they span at least a
// factor of kLogSpan.
inline constexpr double kLogSpan = 20;
Axis MakeAxis(const ValueRange& range, double margin, bool log_allowed);

struct Tick {
  double value = 0;
  std::string text;  // empty: a small tick between numbered ones
};

// Linear: at 1, 2 or 5 times a power of ten, about `wanted` of them. Logarithmic: at powers of ten; where these are
// few, also at 2 and 5 times them.
std::vector<Tick> Ticks(const Axis& axis, int wanted);

// A number beside others that are `step` apart: "0.05", "20k", "1.5M", "2e-06".
std::string TickText(double value, double step);

}  // namespace lockstep::track
