// Modulated deformable convolution (DCNv2) with backward: each tap of the kernel reads, bilinearly, from where its
// offset points to, times its mask. Stride 1, padded to keep the size. Frames lie channels last. Own code on the CPU
// and on NVIDIA GPUs (deformable_gpu.h), differentiable tensor operations elsewhere. Pure functions; any thread; no
// collectives.
#pragma once

#include <torch/types.h>

#include <vector>

namespace lockstep::models {

struct DeformableArgs {
  at::Tensor frames;  // [n, h, w, c]
  at::Tensor offset;  // [n, h, w, g * k * k * 2]: for each of g groups of channels and each tap, y then x
  at::Tensor mask;    // [n, h, w, g * k * k]
  at::Tensor weight;  // [out, c / groups, k, k]; `groups` follows from its shape, as in torchvision
  at::Tensor bias;    // [out]
};

// [n, h, w, out].
at::Tensor DeformableConv(const DeformableArgs& args);

struct FlowGuidedArgs {
  at::Tensor frames;              // [n, h, w, c]
  at::Tensor raw;                 // [n, h, w, 3 * T], T = g * k * k: what a convolution gave for offsets, then masks
  std::vector<at::Tensor> flows;  // [n, h, w, 2], x first, one for each equal part of the T taps
  double reach;                   // how many pixels offsets may differ from the flow
  at::Tensor weight, bias;        // as above
};

// DeformableConv with offset = reach * tanh(raw) + flow and mask = sigmoid(raw); on a GPU in one pass over `raw`.
at::Tensor FlowGuidedDeformable(const FlowGuidedArgs& args);

// The same as DeformableConv from tensor operations (a gather for each of four corners): any device, any floating type,
// much memory.
at::Tensor DeformableConvByGather(const DeformableArgs& args);

}  // namespace lockstep::models
