// The plan of a training in one line, whether it fits, and what to say when memory ran out all the same. Pure, any
// thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/choices.h"

namespace lockstep::plan {

// "8.4 GiB of 139.8 GiB on the GPU (activations 5.7 GiB, optimizer 942.8 MiB, ...), 63 ms a step"; components below a
// hundredth are left out.
std::string OneLine(const Line& line, const Machine& machine);
// Empty where it fits. Else what is too large, and the nearest choice that fits.
std::string WhyNot(const Workload& workload, const Line& line, const Machine& machine);

struct Explanation {
  std::string what, remedy;  // the remedy is empty where no choice fits
};
// `owned`: what the engine holds, by component. `peak`: what torch's allocator handed out at most; none on a CPU.
Explanation ExplainOutOfMemory(const Workload& workload, const Line& planned, const Machine& machine,
                               const MemoryBytes& owned, std::optional<int64_t> peak);

}  // namespace lockstep::plan
