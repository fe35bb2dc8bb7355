#include "engine/flat.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::engine {
namespace {

// Whole cache lines: no two parameters share one, vector loads are aligned, and later any range can be cut at them.
constexpr int64_t kAlignment = 16;

}  // namespace

Result<FlatParameters> FlatParameters::Create(const torch::nn::Module& module, const Allocate& gradients) {
  FlatParameters flat;
  const auto named = module.named_parameters(/*recurse=*/true);
  int64_t offset = 0;
  for (auto it = named.end(); it != named.begin();) {
    --it;
    const at::Tensor& tensor = it->value();
    if (!tensor.requires_grad()) continue;
    if (tensor.scalar_type() != at::kFloat) {
      return Status(
          Code::kUsage,
          fmt::format("parameter {}: expected float32, found {}", it->key(), c10::toString(tensor.scalar_type())),
          "keep trainable weights in float32 and let train.precision choose what is computed in");
    }
    if (!flat.parameters_.empty() && tensor.device() != flat.parameters_.front().tensor.device()) {
      return Status(Code::kUsage,
                    fmt::format("parameter {} is on {}, {} on {}", it->key(), tensor.device().str(),
                                flat.parameters_.front().name, flat.parameters_.front().tensor.device().str()),
                    "move the whole model to one device");
    }
    flat.parameters_.push_back({it->key(), tensor, offset, tensor.numel()});
    flat.count_ += tensor.numel();
    offset += (tensor.numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (flat.parameters_.empty()) {
    return Status(Code::kUsage, "the model has no parameter that requires a gradient", "unfreeze something to train");
  }
  const at::Device device = flat.parameters_.front().tensor.device();
  flat.values_ = at::zeros({offset}, at::TensorOptions().dtype(at::kFloat).device(device));
  flat.gradients_ = gradients(offset);
  for (FlatParameter& parameter : flat.parameters_) {
    at::Tensor view = View(flat.values_, parameter);
    {
      const at::NoGradGuard no_grad;
      view.copy_(parameter.tensor);
    }
    parameter.tensor.set_data(view);
  }
  flat.ResetGradients();
  return flat;
}

at::Tensor FlatParameters::View(const at::Tensor& flat, const FlatParameter& parameter) {
  return flat.narrow(0, parameter.offset, parameter.numel).view(parameter.tensor.sizes());
}

void FlatParameters::ResetGradients() {
  gradients_.zero_();
  for (FlatParameter& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    const float* expected = static_cast<const float*>(gradients_.const_data_ptr()) + parameter.offset;
    if (!gradient.defined() || gradient.const_data_ptr() != expected) gradient = View(gradients_, parameter);
  }
}

}  // namespace lockstep::engine
