// Every choice of stage, offload and recomputing for a workload on a machine: memory, whether it fits, expected time;
// the one to take, and why; what single optimisations bring. Pure, any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/machine.h"
#include "plan/memory.h"
#include "plan/setting.h"
#include "plan/step_time.h"
#include "plan/workload.h"

namespace lockstep::plan {

struct Line {
  Setting setting;
  MemoryBytes memory;
  StepTime time;
  bool fits_device = true, fits_host = true;

  bool fits() const { return fits_device && fits_host; }
  std::string Name() const;  // "stage 2, optimizer offloaded, recomputing"
  std::string Keys() const;  // "train.zero.stage=2 train.offload.optimizer=true train.recompute=true"
};

Line LineOf(const Workload& workload, const Setting& setting, const Machine& machine);

// All that the engine can run: `base` with every stage, offload and recomputing. One rank shares nothing, so that its
// stages 1 to 3 are left out, but for stage 3 with offloaded parameters.
std::vector<Line> LinesOf(const Workload& workload, const Setting& base, const Machine& machine);

struct Advice {
  std::optional<size_t> best;  // of the lines; none: nothing fits
  std::string why;
};
Advice Recommend(const std::vector<Line>& lines, const Machine& machine);

// The line that fits and is nearest to `wanted`: the fewest keys change, then the fastest. None: nothing fits.
std::optional<size_t> NearestThatFits(const std::vector<Line>& lines, const Setting& wanted);

// What is known of a training beside its model, for the rows on data and frozen encoders.
struct Around {
  double data_seconds = 0;     // to prepare a rank's batch, with all decoder threads of the rank; 0: unknown
  double encoder_seconds = 0;  // of a frozen encoder in a step
  double cache_seconds = 0;    // to read its features instead
};

struct Gain {
  std::string what;              // "ZeRO-2 instead of ZeRO-3"
  double before = 0, after = 0;  // seconds of a step
  std::string note;
  double Factor() const { return after > 0 ? before / after : 1; }
};
// The optimisations that guides advise, each for itself on this workload.
std::vector<Gain> GainsOf(const Workload& workload, const Setting& base, const Machine& machine, const Around& around);

}  // namespace lockstep::plan
