// Execution::kFast of TAEHV: the same parameters and the same function as the layers in taehv_layers.h, arranged so
// that memory is passed over as seldom as possible. Everything stays channels-last in the compute type (autocast's,
// else the parameters'); layers with nothing nonlinear between them run as one convolution, so that neither an enlarged
// nor a regrouped picture exists; a memory block is three convolutions and one pass between blocks, with its backward
// written out. Layers it does not know (the wide decoder's) run as they are. Results differ from the reference by
// rounding.
//
// Used by one thread; no collectives; nothing waits for a device, so a CUDA graph can record it.
#pragma once

#include <ATen/core/Tensor.h>

#include "models/taehv_layers.h"

namespace lockstep::models::fused {

// What stack.Forward computes, with the same meaning of memory and wrap. With a memory there are no gradients.
at::Tensor Run(taehv::Stack& stack, const at::Tensor& x, int64_t clips, taehv::StackMemory* memory,
               const taehv::Wrap& wrap);

}  // namespace lockstep::models::fused
