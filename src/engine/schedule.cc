#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::engine {
namespace {

double Above(double floor, double factor) { return floor + (1 - floor) * factor; }

}  // namespace

double Factor(const Schedule& schedule, uint64_t step) {
  const auto at = static_cast<double>(step);
  const auto warmup = static_cast<double>(schedule.warmup);
  if (step < schedule.warmup) {
    return schedule.warmup_shape == Schedule::WarmupShape::kLinear ? at / warmup
                                                                   : std::log(at + 1) / std::log(std::max(2.0, warmup));
  }
  const double span = std::max(1.0, static_cast<double>(schedule.steps) - warmup);
  const double done = std::min(1.0, (at - warmup) / span);
  switch (schedule.kind) {
    case Schedule::Kind::kConstant:
      return 1;
    case Schedule::Kind::kLinear:
      return Above(schedule.floor, 1 - done);
    case Schedule::Kind::kCosine:
      return Above(schedule.floor, 0.5 * (1 + std::cos(std::numbers::pi * done)));
    case Schedule::Kind::kCosineRestarts: {
      if (done >= 1) return schedule.floor;
      const double cycle = schedule.cycles * done;
      return Above(schedule.floor, 0.5 * (1 + std::cos(std::numbers::pi * (cycle - std::floor(cycle)))));
    }
    case Schedule::Kind::kMultistep: {
      const auto passed =
          std::count_if(schedule.milestones.begin(), schedule.milestones.end(), [&](uint64_t m) { return m <= step; });
      return std::pow(schedule.gamma, static_cast<double>(passed));
    }
    case Schedule::Kind::kPolynomial:
      return Above(schedule.floor, std::pow(1 - done, schedule.power));
  }
  return 1;
}

}  // namespace lockstep::engine
