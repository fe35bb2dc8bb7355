// What stands between the matrix products of a decoder, as CUDA kernels: one pass over memory each, where a composition
// of ATen's operators makes three to ten. Only where Usable says so. `wide` below means the type of the residual stream
// and the norms' weights, float32 or the type of matrix products. Safe while a CUDA graph records; no synchronisation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models::decoder::kernels {

// On this device, with matrix products in `narrow` (half precision) and the residual stream in `wide`.
bool Usable(const at::Device& device, at::ScalarType narrow, at::ScalarType wide, int64_t width);

struct Normed {
  at::Tensor sum;      // x + y, where there is a y and the sum is wanted
  at::Tensor normed;   // in the type of matrix products
  at::Tensor inverse;  // float32, one per row
};
// RMSNorm of x + y, rows [N, width]; y (in `type`) may be undefined.
Normed Norm(const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight, double epsilon, at::ScalarType type,
            bool with_sum);

struct NormGradients {
  at::Tensor dx;      // wide: along + the norm's
  at::Tensor narrow;  // the same in the type of matrix products, where wanted
  at::Tensor normed;  // what the norm gave in forward, where wanted
  at::Tensor weight;  // float32
};
// `along` may be undefined.
NormGradients NormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y, const at::Tensor& inverse,
                           const at::Tensor& weight, const at::Tensor& along, bool with_narrow, bool with_normed);

// Turns the first `heads` heads of `size` elements in every row of x, in place. Tables: [rows or length, size / 2].
void Rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, int64_t heads, int64_t size);
// Gradients of queries, keys and values, [B, T, heads, size] with any strides but the last -> [B * T, heads of all *
// size], queries and keys turned back.
at::Tensor RotateBack(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& cos,
                      const at::Tensor& sin);

// [N, 2 * width] (gate, up) -> [N, width].
at::Tensor SwiGlu(const at::Tensor& both);
// `both` becomes its own gradient, and the gradient of the output becomes the output.
void SwiGluBackward(const at::Tensor& both, const at::Tensor& d_out);

// Losses of rows of logits [N, stride] of which `vocabulary` columns count, 0 for negative labels. With gradients the
// logits become those of the losses' sum. The stride is a multiple of eight.
at::Tensor CrossEntropy(const at::Tensor& logits, const at::Tensor& labels, int64_t vocabulary, bool gradients);

}  // namespace lockstep::models::decoder::kernels
