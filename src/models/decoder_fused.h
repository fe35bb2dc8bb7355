// A decoder layer as one autograd function over the kernels of decoder_kernels.h: projections that read the same input
// are one matrix product, gradients of float32 weights are summed and written in float32, and little is kept for
// backward: per token the layer's input, what attention read and wrote, and gate and up. Norms, SwiGLU and attention's
// projection are computed again from these. Same function as Layer::Forward's composition, other rounding. No state.
#pragma once

#include "models/decoder_layers.h"

namespace lockstep::models::decoder {

// A CUDA device, matrix products in half precision, no LoRA, nothing frozen, no mask, and sizes the kernels know.
bool Fuses(const Layer& layer, const at::Tensor& x, const Pass& pass);

at::Tensor FusedLayer(const Layer& layer, const at::Tensor& x, const Pass& pass);

}  // namespace lockstep::models::decoder
