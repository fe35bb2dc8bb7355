// Memory and work of one pass (forward and backward of a micro-batch) beside the parameters: what autograd and the
// fused layers keep, and what is there for a moment. Derived from the code of the models, one file each; docs/plan.md
// has the formulas. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/setting.h"
#include "plan/workload.h"

namespace lockstep::plan {

// A moment of a pass at which memory may be highest, in the order of the pass.
struct Moment {
  std::string name;
  int unit = -1;  // that is computed; -1: none
  bool backward = false;
  int64_t activations = 0;  // kept for backward, in bytes
  int64_t temporary = 0;    // there only now
};

// Of `samples` samples. Empty: the workload says nothing about its samples.
std::vector<Moment> MomentsOf(const Workload& workload, const Setting& setting, int64_t samples);
std::vector<Moment> LmMoments(const LmSample& sample, const Setting& setting, int64_t samples);
std::vector<Moment> TaehvMoments(const TaehvSample& sample, const Setting& setting, int64_t samples);

// Operations of a pass: multiplications and additions counted as two, bytes moved by what is not a matrix product.
struct Work {
  double forward_flops = 0, backward_flops = 0;  // matrix products and convolutions; backward with what it recomputes
  double forward_attention = 0, backward_attention = 0;  // flops
  double forward_bytes = 0, backward_bytes = 0;
  double kernels = 0;         // launched one behind the other
  int64_t head_size = 0;      // of attention
  bool convolutions = false;  // flops are those of convolutions
};
Work WorkOf(const Workload& workload, const Setting& setting, int64_t samples);
Work LmWork(const LmSample& sample, const Setting& setting, int64_t samples);
Work TaehvWork(const TaehvSample& sample, const Setting& setting, int64_t samples);

}  // namespace lockstep::plan
