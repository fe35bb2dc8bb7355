// The units of a model, in the order of its forward pass. A unit is recomputed as a whole in backward, and a strategy
// may gather its parameters around it (unit_runner.h). A recipe lists the units with their parameters, and runs the
// forward of every unit through the given runner.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::engine {

struct Unit {
  std::string name;
  std::vector<std::string> parameters;  // as in model().named_parameters(); no parameter is in two units
  bool keep = false;                    // its activations stay, also with train.recompute
};

using UnitForward = std::function<at::Tensor(const at::Tensor& input)>;
// Runs unit number `unit` of Recipe::Units on its input.
using UnitRunner = std::function<at::Tensor(size_t unit, const UnitForward& forward, const at::Tensor& input)>;

}  // namespace lockstep::engine
