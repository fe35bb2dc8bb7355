// Causal attention of a packed batch: what is the same in all layers (mask or document boundaries) is prepared once per
// batch. PyTorch's kernels do the work. No state.
#pragma once

#include <torch/types.h>

#include <tuple>

#include "models/packing.h"

namespace lockstep::models::decoder {

struct AttentionPlan {
  at::Tensor mask;      // [B, 1, T, T] bool: who is seen; undefined: all earlier tokens of the row
  at::Tensor ends;      // int32: 0 and the end of every document of the flattened batch, for varlen flash attention
  int64_t longest = 0;  // no document is longer; with `ends`
};

// For queries of `type` on packing's device: boundaries where flash attention takes them, else a mask.
AttentionPlan PlanAttention(const Packing& packing, at::ScalarType type, int64_t head_size);

// Queries [B, T, heads, size], keys and values [B, T, kv heads, size] -> [B, T, heads * size].
at::Tensor Attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionPlan& plan);

// Attend with its backward apart, for half precision on a CUDA device and a plan without a mask. Queries, keys and
// values may be views of one tensor.
struct KeptAttention {
  at::Tensor out;           // [B, T, heads, size], contiguous
  at::Tensor lse;           // what backward needs beside it
  at::Tensor seed, offset;  // of cuDNN; undefined for flash attention
};
KeptAttention AttendForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AttentionPlan& plan);
// Gradients of queries, keys and values in their shapes, with strides of their own.
std::tuple<at::Tensor, at::Tensor, at::Tensor> AttendBackward(const at::Tensor& d_out, const at::Tensor& q,
                                                              const at::Tensor& k, const at::Tensor& v,
                                                              const KeptAttention& kept, const AttentionPlan& plan);

// The last t tokens of sequences with `keys` tokens: queries [B, t, heads, size], keys and values
// [B, kv heads, keys, size]. No gradients.
at::Tensor AttendCached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

}  // namespace lockstep::models::decoder
