// Weights from a file into a module, strictly: every parameter and buffer gets a tensor of its shape, nothing is left
// over, or nothing is changed and the Status names what does not fit. Where the tensors come from (safetensors, a
// PyTorch zip) is the caller's business. One thread; no collective: every rank loads for itself.
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace torch::nn {
class Module;
}

namespace lockstep::models {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Parameters and buffers by their state-dict names, in the module's order. The tensors are the module's own.
NamedTensors StateDict(const torch::nn::Module& module);

struct LoadRules {
  // Makes a tensor of another shape fit, for example by taking a part of it; absent or nullopt: it does not fit.
  std::function<std::optional<at::Tensor>(const std::string& name, const at::Tensor& have, at::IntArrayRef want)> fit;
  // Put into the hint when something did not fit: what the file looks like and which model would take it.
  std::function<std::string(const NamedTensors& weights)> advise;
};

// Adds "3 missing: a, b, c" to a list of findings that are separated by "; "; nothing for no names.
void AppendNames(std::string& text, const char* what, const std::vector<std::string>& names);

// An error that names the tensor when it holds NaN or infinity: nothing good comes of training or using that.
Status CheckFinite(const std::string& name, const at::Tensor& tensor);

// Copies weights into the module; half-precision files are widened, integer tensors and values that are not finite
// refused.
Status LoadWeights(torch::nn::Module& module, const NamedTensors& weights, const LoadRules& rules = {});

}  // namespace lockstep::models
