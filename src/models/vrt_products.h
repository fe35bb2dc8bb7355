// Matrix products over rows of a clip together with what stands around them, as one CUDA kernel each: nothing between
// the input and the result goes through memory, and the same of their gradients. Half precision, parameters and sums in
// float32; only where Fits says so. Safe while a CUDA graph records; no synchronisation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models::vrt::products {

struct LinearParameters {
  at::Tensor weight, bias;  // [out, in], [out]; float32, contiguous
};

// `in` elements to `out` columns.
bool FitsLinear(const at::Tensor& x, int64_t in, int64_t out);
// x + factor[clip] * linear(in): rows [clips * N, out]; factor (float32, [clips]) may be undefined.
at::Tensor AddLinear(const at::Tensor& x, const at::Tensor& in, const LinearParameters& linear,
                     const at::Tensor& factor);

struct MlpParameters {
  at::Tensor norm, norm_bias;
  LinearParameters gate, value, down;
};
bool FitsMlp(const at::Tensor& x, int64_t width, int64_t hidden);
// x + factor[clip] * down(gelu(gate n) * value n), n = the LayerNorm of x. Keeps nothing for a backward pass.
at::Tensor AddMlp(const at::Tensor& x, const MlpParameters& mlp, const at::Tensor& factor, double epsilon);

// The gradients of both, of a linear layer behind a norm and of the feed-forward half. What they leave for products
// over all rows has a last group of eight columns: a one (times the clip's factor in `given`), then zeros.
struct NormGradient {
  at::Tensor dx;     // `d` + the norm's gradient
  at::Tensor plain;  // [rows, width + 8]: the norm's rows before weight and bias
  at::Tensor along;  // sums of factor[clip] * d over rows, float32; of a linear layer only
};
bool FitsLinearGradient(const at::Tensor& x, int64_t width, int64_t columns);
// The layer's result [rows, columns] has the gradient d_linear; weight [columns, width] in the type of x. `d` is added.
NormGradient LinearBackward(const at::Tensor& d_linear, const at::Tensor& x, const at::Tensor& d,
                            const at::Tensor& weight, const at::Tensor& norm, const at::Tensor& factor, double epsilon);

struct MlpGradient {
  NormGradient norm;
  at::Tensor d_both;  // [rows, 2 * hidden]: of gate and value
  at::Tensor given;   // [rows, hidden + 8]: what GEGLU gave, times the factor
};
struct MlpMatrices {
  at::Tensor both, both_bias;  // [2 * hidden, width], [2 * hidden]: gate, then value; the type of x
  at::Tensor down;             // [width, hidden]
};
bool FitsMlpGradient(const at::Tensor& x, int64_t width, int64_t hidden);
// Of AddMlp for the gradient `d` of its result; makes what lies between again.
MlpGradient MlpBackward(const at::Tensor& x, const at::Tensor& d, const at::Tensor& norm, const at::Tensor& norm_bias,
                        const MlpMatrices& mlp, const at::Tensor& factor, double epsilon);

// Parameters of a norm and of the linear layer behind it, from the product of the layer's gradient with `plain`.
struct BehindNorm {
  at::Tensor weight, bias, norm, norm_bias;  // float32
};
BehindNorm GradientsBehindNorm(const at::Tensor& product, const at::Tensor& weight, const at::Tensor& norm,
                               const at::Tensor& norm_bias);

}  // namespace lockstep::models::vrt::products
