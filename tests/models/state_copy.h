// The weights of a module as they are now, for tests that change the module and compare. Header only.
#pragma once

#include <torch/nn/module.h>

#include "models/weights.h"

namespace lockstep::models {

inline NamedTensors CopyOf(const torch::nn::Module& module) {
  NamedTensors copy = StateDict(module);
  for (auto& [name, tensor] : copy) tensor = tensor.detach().clone();
  return copy;
}

}  // namespace lockstep::models
