// The two halves of a block of VRT, and its feed-forward part alone, as one autograd function each over the kernels of
// vrt_kernels.h. The same functions as those of vrt_layers.cc; the residual stream and what lies between matrix
// products are in the type of those (bfloat16 or half), sums and the parameters' gradients in float32.
#pragma once

#include "models/vrt_layers.h"

namespace lockstep::models::vrt {

// What attention gave in the first pass of a unit that is recomputed: the second takes it instead of attending again.
struct KeptAttention {
  at::Tensor out, lse;
};

// Whether this runs as above: on a CUDA device in half precision, windows of 8 x 8, no LoRA.
bool Fuses(const Norm& norm, const WindowAttention& attention, const at::Tensor& x);
bool Fuses(const Geglu& mlp, const at::Tensor& x);
bool Fuses(const Norm& norm, const at::Tensor& x);

// x + factor * attention(norm(x)); `factor` [b] float32 or undefined.
// `copy` null: made here; `kept` may be null.
at::Tensor FusedAttention(const Norm& norm, const WindowAttention& attention, const Size3& shift, const at::Tensor& x,
                          const at::Tensor& factor, std::shared_ptr<const AttentionCopy> copy, KeptAttention* kept);
// x + factor * mlp(norm(x)).
at::Tensor FusedMlp(const Norm& norm, const Geglu& mlp, const at::Tensor& x, const at::Tensor& factor,
                    std::shared_ptr<const MlpCopy> copy);
// x + linear(in), on any device.
at::Tensor AddLinear(const Linear& linear, const at::Tensor& in, const at::Tensor& x);
at::Tensor FusedNorm(const Norm& norm, const at::Tensor& x);
// mlp(x).
at::Tensor FusedGeglu(const Geglu& mlp, const at::Tensor& x);

}  // namespace lockstep::models::vrt
