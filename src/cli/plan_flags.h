// What `lockstep plan` is asked: its flags as values, and the workload, setting and machine that follow from them. A
// recipe's model is described by the train program, a number of parameters is enough without one. Main thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/print.h"

namespace lockstep::cli {

struct PlanFlags {
  std::string recipe, program, config, options, deepspeed, accelerate;
  std::vector<std::string> overrides;
  std::string parameters;  // "7B", "124M"
  int gpus = 0, nodes = 0;
  std::string memory, host_memory, gpu, links;
  double flops = 0, bandwidth = 0, inside = 0, between = 0;  // TFLOP/s, GB/s
  int batch = 0, micro_batch = 0, sequence = 0, vocabulary = 0;
  std::string clip, type;
  bool cpu = false, measure = false, json = false, ring = false, tree = false;
  std::string picture, scale, scaling = "weak";
  int stage = -1;
  plan::Reliability reliability;
  plan::Around around;
};

// Nothing: go on. Else the exit code.
std::optional<int> ReadPlanFlags(int argc, char** argv, PlanFlags* flags);

// "1.5B", "124M", "7e9", "123578880". Errors say what was expected.
Result<int64_t> ParseParameterCount(const std::string& text);

// Everything but printing.
Result<plan::Plan> MakePlan(const PlanFlags& flags);

}  // namespace lockstep::cli
