// What autograd functions that stand for several layers have in common: tensors kept from forward to backward, and a
// description of the layer. For .cc files of such functions.
#pragma once

#include <torch/autograd.h>

#include <memory>
#include <utility>

namespace lockstep::models {

// Matrices (or vectors) concatenated by rows, in `type`; without a copy where they lie so already.
at::Tensor CatRows(at::ArrayRef<at::Tensor> matrices, at::ScalarType type);

// What forward keeps in saved_data, taken out by backward: each tensor is released when it was last used.
inline at::Tensor TakeKept(torch::autograd::AutogradContext* context, const char* name) {
  const auto found = context->saved_data.find(name);
  TORCH_CHECK(found != context->saved_data.end(), "backward of a fused layer runs once");
  at::Tensor tensor = found->second.toTensor();
  context->saved_data.erase(found);
  return tensor;
}

template <typename Shape>
struct HeldShape : torch::CustomClassHolder {
  explicit HeldShape(std::shared_ptr<const Shape> value) : shape(std::move(value)) {}
  std::shared_ptr<const Shape> shape;
};

template <typename Shape>
void KeepShape(torch::autograd::AutogradContext* context, const std::shared_ptr<const Shape>& shape) {
  context->saved_data["shape"] = c10::IValue::make_capsule(c10::make_intrusive<HeldShape<Shape>>(shape));
}

template <typename Shape>
std::shared_ptr<const Shape> KeptShape(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<HeldShape<Shape>>(context->saved_data.at("shape").toCapsule())->shape;
}

}  // namespace lockstep::models
