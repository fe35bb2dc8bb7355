// Activation checkpointing: keeps a segment's input instead of its inner activations and runs the segment again during
// backward, with the random state and autocast mode of the first time, so that gradients have the same bits. Parameter
// hooks fire once per segment. Any thread; the segment must be a pure function of its input and the module's
// parameters.
//
//   x = Recompute([&](at::Tensor y) { return block->forward(y); }, x);
#pragma once

#include <torch/types.h>

#include <functional>

namespace lockstep::engine {

at::Tensor Recompute(std::function<at::Tensor(at::Tensor)> segment, const at::Tensor& input);

}  // namespace lockstep::engine
