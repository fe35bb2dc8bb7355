#include "plan/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::plan {

// Wall time of one second of training: M / t * e^(R/M) * (e^((t + d)/M) - 1), Daly's equation 13.
double TrainingShare(double interval, double save, double restart, double mean_time) {
  if (std::isinf(mean_time)) return interval / (interval + save);
  const double wall = mean_time / interval * std::exp(restart / mean_time) * std::expm1((interval + save) / mean_time);
  return std::isfinite(wall) && wall > 0 ? 1 / wall : 0;
}

Goodput GoodputOf(int nodes, const Reliability& r) {
  Goodput out;
  const double rate = r.failures_per_node_hour * nodes / 3600;
  if (rate <= 0) {
    out.mean_time = out.young = out.daly = std::numeric_limits<double>::infinity();
    out.training = 1;
    return out;
  }
  out.mean_time = 1 / rate;
  const double d = r.save, m = out.mean_time;
  out.young = std::sqrt(2 * d * m);
  // Daly's equation 37: a correction of second order; where a checkpoint takes longer than two mean times, one of them.
  const double x = d / (2 * m);
  out.daly = x < 1 ? std::sqrt(2 * d * m) * (1 + std::sqrt(x) / 3 + x / 9) - d : m;
  out.daly = std::max(out.daly, 1.0);
  out.training = TrainingShare(out.daly, d, r.restart, m);
  return out;
}

}  // namespace lockstep::plan
