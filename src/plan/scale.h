// A training as the number of GPUs grows: step time, exposed communication, memory, and what failures cost. Pure, any
// thread.
#pragma once

#include <vector>

#include "plan/choices.h"
#include "plan/goodput.h"

namespace lockstep::plan {

enum class Scaling {
  kWeak,    // the batch grows with the GPUs
  kStrong,  // the batch stays
};

struct ScalePoint {
  int gpus = 1, nodes = 1;
  Line line;
  double ring = 0, tree = 0;  // seconds of one all-reduce of all gradients
  double efficiency = 1;      // samples per second and GPU, against the first point
  Goodput goodput;
};

// "8..16384": from the first to the last, doubling; "8,16,48": those. Errors say what is wrong.
Result<std::vector<int>> ParseScale(const std::string& text);

std::vector<ScalePoint> ScaleOf(const Workload& workload, const Setting& base, const Machine& machine,
                                const std::vector<int>& gpus, Scaling scaling, const Reliability& reliability);

}  // namespace lockstep::plan
