// The parts of a decoder layer between its matrix products, each one function with a backward that keeps its inputs and
// recomputes the rest. Composed of ATen's operators; where a device has a better kernel, it belongs behind these
// functions. Numerics are those of Hugging Face's Qwen2: norms in float32, cast back before the weight. No state.
#pragma once

#include <torch/types.h>

#include <utility>

namespace lockstep::models::decoder {

// The type that matrix products of `like` run in: autocast's where it is enabled, else its own.
at::ScalarType ComputeType(const at::Tensor& like);

// x / sqrt(mean(x^2) + epsilon) * weight over the last dimension, in ComputeType(x): what follows is a matrix product.
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

// residual + x, and RmsNorm of that.
struct AddedNorm {
  at::Tensor sum, normed;
};
AddedNorm AddRmsNorm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight, double epsilon);

// Rotary embedding of positions, shared by all layers of a pass: [B or 1, T, 1, head size / 2], no gradient.
struct Rotary {
  at::Tensor cos, sin;
};
// Computed in float32, then cast to `type`.
Rotary MakeRotary(const at::Tensor& positions, int64_t head_size, double theta, at::ScalarType type);
// Turns [B, T, heads, head size]; element i of a head pairs with i + half ("NeoX" layout). The result has x's type.
at::Tensor Rotate(const at::Tensor& x, const Rotary& rotary);

// silu(gate) * up.
at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace lockstep::models::decoder
