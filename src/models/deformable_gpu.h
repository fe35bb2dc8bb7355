// Deformable convolution on a GPU: kernels sample a matrix of columns, some pixels at a time, which one matrix product
// multiplies with the weight. Backward gives the gradients of everything; it samples once more instead of keeping the
// columns. Only where DeformableOnGpu says so. Safe while a CUDA graph records; no synchronisation.
#pragma once

#include "models/deformable.h"

namespace lockstep::models {

// Whether frames of this device and type have kernels. Under autocast the type is autocast's.
bool DeformableOnGpu(const at::Tensor& frames);

at::Tensor DeformableConvGpu(const DeformableArgs& args);
at::Tensor FlowGuidedDeformableGpu(const FlowGuidedArgs& args);

}  // namespace lockstep::models
