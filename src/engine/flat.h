// All trainable parameters of a model in one flat buffer, and their gradients in another. The engine owns both; the
// module's tensors become views of them, so that communication, clipping, the optimizer, EMA and checkpoints walk over
// contiguous memory. Parameters lie in reverse order of registration, which is about the order in which backward
// finishes their gradients: a bucket of the reducer is a range of this buffer.
//
// Gradients are accumulated by autograd straight into their views. Used by the training thread; creating it needs no
// other rank.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::engine {

struct FlatParameter {
  std::string name;
  at::Tensor tensor;   // the module's own, a view of the flat buffer
  int64_t offset = 0;  // in elements
  int64_t numel = 0;
};

class FlatParameters {
 public:
  using Allocate = std::function<at::Tensor(int64_t numel)>;

  // Every parameter of `module` that requires a gradient now. All must be float32 on one device. `gradients` allocates
  // the gradient buffer (shared memory where peers reduce in place).
  static Result<FlatParameters> Create(const torch::nn::Module& module, const Allocate& gradients);

  const std::vector<FlatParameter>& parameters() const { return parameters_; }
  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  int64_t numel() const { return values_.numel(); }  // with padding
  int64_t count() const { return count_; }           // without
  at::Device device() const { return values_.device(); }

  // Gradients become zero and every parameter's .grad is its view again, whatever happened to it meanwhile.
  void ResetGradients();
  // A parameter's part of any buffer with this layout.
  static at::Tensor View(const at::Tensor& flat, const FlatParameter& parameter);

 private:
  std::vector<FlatParameter> parameters_;
  at::Tensor values_, gradients_;
  int64_t count_ = 0;
};

}  // namespace lockstep::engine
