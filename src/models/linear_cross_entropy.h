// A language model's head and loss in one: logits exist for some rows at a time and are never stored, neither in
// forward nor for backward. No state.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace lockstep::models {

// Mean over the rows with label >= 0 of cross_entropy(hidden @ weight^T, label), float32; 0 where there are none.
// hidden [N, width], weight [vocabulary, width], labels [N] int64. Matrix products run in autocast's type where it is
// enabled, and logits have that type as in Hugging Face's models; softmax in float32. With gradients, both are computed
// chunk by chunk in forward (three matrix products per row instead of the four of recomputing) and scaled in backward,
// which runs once on a GPU; the weight's is summed in float32. `rows` is a chunk's size; 0: chosen so that a chunk's
// logits are at most 2^28 on a GPU, 2^24 on a CPU.
at::Tensor LinearCrossEntropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                              int64_t rows = 0);

}  // namespace lockstep::models
