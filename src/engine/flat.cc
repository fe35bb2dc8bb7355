#include "engine/flat.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::engine {
namespace {

// Copies between a flat buffer and memory that holds some of its ranges one after the other.
void CopyRanges(const std::vector<FlatRange>& ranges, const at::Tensor& flat, const at::Tensor& own, bool to_flat) {
  const at::NoGradGuard no_grad;
  int64_t local = 0;
  for (const FlatRange& range : ranges) {
    const at::Tensor there = flat.narrow(0, range.begin, range.size());
    const at::Tensor here = own.narrow(0, local, range.size());
    (to_flat ? there : here).copy_(to_flat ? here : there);
    local += range.size();
  }
}

}  // namespace

Result<FlatParameters> FlatParameters::Create(const torch::nn::Module& module, const Allocate& gradients,
                                              const Options& options) {
  FlatParameters flat;
  std::vector<Layout::Size> sizes;
  const auto named = module.named_parameters(/*recurse=*/true);
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
    flat.parameters_.push_back({it->key(), tensor, 0, tensor.numel()});
    sizes.push_back({it->key(), tensor.numel()});
  }
  if (flat.parameters_.empty()) {
    return Status(Code::kUsage, "the model has no parameter that requires a gradient", "unfreeze something to train");
  }
  flat.layout_ = Layout(sizes, options.layout);
  for (size_t i = 0; i < sizes.size(); ++i) flat.parameters_[i].offset = flat.layout_.parameters()[i].offset;

  const auto whole = at::TensorOptions().dtype(at::kFloat).device(flat.parameters_.front().tensor.device());
  const at::Tensor drawn = at::zeros({flat.layout_.numel()}, whole);
  {
    const at::NoGradGuard no_grad;
    for (FlatParameter& parameter : flat.parameters_) View(drawn, parameter).copy_(parameter.tensor);
  }
  flat.values_ = drawn.to(options.parameters);  // the same memory where it is float32
  flat.gradients_ = gradients(flat.layout_.numel());
  for (FlatParameter& parameter : flat.parameters_) parameter.tensor.set_data(View(flat.values_, parameter));

  flat.stage_ = options.stage;
  OwnedParameters& own = flat.owned_;
  own.ranges = flat.layout_.Kept(options.stage, Buffer::kOptimizer, options.share);
  own.segments = SegmentsOf(flat.layout_, own.ranges);
  const bool all = !IsSharded(options.stage, Buffer::kOptimizer);
  if (all) {
    own.values = drawn;
  } else {
    own.values = at::empty({TotalSize(own.ranges)}, whole);
    CopyRanges(own.ranges, drawn, own.values, /*to_flat=*/false);
  }
  own.gradients = all && flat.gradients_.scalar_type() == at::kFloat ? flat.gradients_ : at::zeros_like(own.values);
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
    const auto* expected = static_cast<const std::byte*>(gradients_.const_data_ptr()) +
                           parameter.offset * static_cast<int64_t>(gradients_.element_size());
    if (!gradient.defined() || gradient.const_data_ptr() != expected) gradient = View(gradients_, parameter);
  }
}

void FlatParameters::ReadOwnedGradients() {
  if (!owned_.gradients.is_same(gradients_)) CopyRanges(owned_.ranges, gradients_, owned_.gradients, false);
}

void FlatParameters::ReadOwnedValues() {
  if (owned_.values.const_data_ptr() != values_.const_data_ptr()) {
    CopyRanges(owned_.ranges, values_, owned_.values, false);
  }
}

void FlatParameters::WriteOwnedValues() {
  if (owned_.values.const_data_ptr() != values_.const_data_ptr()) {
    CopyRanges(owned_.ranges, values_, owned_.values, true);
  }
}

}  // namespace lockstep::engine
