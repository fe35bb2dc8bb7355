// Memory passes of the fast execution as CUDA kernels, compiled by NVRTC when first used: what stands between two
// convolutions (bias, residual, relu, the frame before, regrouping) in one pass instead of four. Every function here
// has a composition of ATen operators in fused_frames.cc that says what it computes; these only run where Usable says
// so. Safe to call from any thread and while a CUDA graph records; no synchronisation, memory from torch's allocator.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/fused_frames.h"

namespace lockstep::models::fused::kernels {

// A CUDA tensor of a type and width the kernels know, on a device they could be compiled for.
bool Usable(const at::Tensor& x, int64_t channels);

// See fused_frames.h for each. `into` has the right size and memory format; exactly one of cat and out is defined.
void Epilogue(const at::Tensor& z, Layout layout, const Shape& shape, const After& after, const at::Tensor& first,
              const at::Tensor& cat, const at::Tensor& out, int64_t out_group);
// Sums are written as (blocks, channels) partial sums in float32, when defined; SumBlocks rows of them.
int64_t SumBlocks();
void Collect(const Arriving& from, const Shape& shape, Layout layout, const at::Tensor& into, const at::Tensor& sums);
// (sets, blocks, channels) -> (sets, channels). `like` names the type whose kernels are loaded.
at::Tensor Total(const at::Tensor& sums, const at::Tensor& like);

// Parameters (float32, contiguous) into the compute type with channels innermost, and gradients back, all in one launch
// per 32. Shapes of the pairs are equal.
void Pack(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& into);
void Unpack(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& into);

}  // namespace lockstep::models::fused::kernels
