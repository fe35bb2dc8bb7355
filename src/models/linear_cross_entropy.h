// A language model's head and loss in one: logits exist for some rows at a time and are never stored, neither in
// forward nor for backward. No state.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace lockstep::models {

// Mean over the rows with label >= 0 of cross_entropy(hidden @ weight^T, label), float32; 0 where there are none.
// hidden [N, width], weight [vocabulary, width], labels [N] int64. Matrix products run in autocast's type where it is
// enabled, softmax in float32. With gradients, both are computed chunk by chunk in forward (three matrix products per
// row instead of the four of recomputing) and scaled in backward; the weight's is summed in float32. `rows` is a
// chunk's size; 0: chosen so that a chunk's logits take 1 GiB on a GPU, 64 MiB on a CPU.
at::Tensor LinearCrossEntropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                              int64_t rows = 0);

}  // namespace lockstep::models
