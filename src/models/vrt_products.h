// Matrix products over rows of a clip together with what stands around them, as one CUDA kernel each: nothing between
// the input and the result goes through memory. Half precision, parameters and sums in float32; only where Fits says
// so. Safe while a CUDA graph records; no synchronisation.
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

}  // namespace lockstep::models::vrt::products
