// Learning-rate schedules as closed forms of the optimizer step: no state, so a resumed run needs none, and independent
// of the number of ranks. `step` counts the optimizer steps already done; the first step of a run uses Factor(0).
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::engine {

struct Schedule {
  enum class Kind { kConstant, kLinear, kCosine, kCosineRestarts, kMultistep, kPolynomial };
  Kind kind = Kind::kCosine;
  enum class WarmupShape { kLinear, kLog };
  uint64_t warmup = 0;  // steps over which the factor rises from 0 to 1
  WarmupShape warmup_shape =
      WarmupShape::kLinear;  // kLog: log(step + 1) / log(warmup), as DeepSpeed's schedules have it
  uint64_t length = 0;       // steps of the whole schedule as configured; 0: as many as the run has
  uint64_t steps = 1;        // the same, in force; warm-up included
  int cycles = 1;            // of cosine with restarts
  double power = 1;          // of polynomial
  double floor = 0;          // the factor at the end of linear, cosine and polynomial; also the lowest of restarts
  std::vector<uint64_t> milestones;
  double gamma = 0.1;  // factor at each milestone
};

// What the learning rate is multiplied by. After the last step it stays where it ended.
double Factor(const Schedule& schedule, uint64_t step);

}  // namespace lockstep::engine
