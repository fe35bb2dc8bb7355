// The operators that fuse RGB and spikes, by name, and the convolutions they are made of. Parts of FusionAdapter.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/vrt_fusion.h"

namespace lockstep::models::fusion {

constexpr int64_t kRgb = 3;

// Frames [b, n, c, h, w] in and out. What an operator is given follows from the frame contract.
struct Operator : torch::nn::Module {
  virtual at::Tensor Fuse(const at::Tensor& rgb, const at::Tensor& spikes) const = 0;
};

struct OperatorRow {
  const char* name;
  FrameContract contract;
  bool takes_bins;  // supports the collapsed contract
  bool warms_up;
  std::function<std::shared_ptr<Operator>(const FusionConfig&, int64_t spikes)> make;
};
const std::vector<OperatorRow>& Operators();
// Null where there is none of that name.
const OperatorRow* FindOperator(const std::string& name);

// PyTorch's Conv2d, frames channels first.
struct PlainConv : torch::nn::Module {
  PlainConv(int64_t in, int64_t out, int64_t kernel, int64_t step = 1) : stride(step), padding(kernel / 2) {
    weight = register_parameter("weight", at::zeros({out, in, kernel, kernel}));
    bias = register_parameter("bias", at::zeros({out}));
  }
  at::Tensor Forward(const at::Tensor& x) const { return at::conv2d(x, weight, bias, stride, padding); }
  at::Tensor weight, bias;
  int64_t stride, padding;
};

// Convolutions with a ReLU after each, or after all but the last; numbered as a Sequential with its activations.
struct ConvStack : torch::nn::Module {
  struct Row {
    int64_t in, out, kernel, stride = 1;
  };
  ConvStack(const std::vector<Row>& rows, bool relu_last) : relu_after_last(relu_last) {
    for (size_t i = 0; i < rows.size(); ++i) {
      convs.push_back(register_module(
          std::to_string(2 * i), std::make_shared<PlainConv>(rows[i].in, rows[i].out, rows[i].kernel, rows[i].stride)));
    }
  }
  at::Tensor Forward(at::Tensor x) const {
    for (size_t i = 0; i < convs.size(); ++i) {
      x = convs[i]->Forward(x);
      if (relu_after_last || i + 1 < convs.size()) x = at::relu(x);
    }
    return x;
  }
  std::vector<std::shared_ptr<PlainConv>> convs;
  bool relu_after_last;
};

}  // namespace lockstep::models::fusion
