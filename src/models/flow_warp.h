// Frames moved along an optical flow, as VRT does it: out(y, x) = in(y + flow_y, x + flow_x). Frames lie channels last,
// [n, h, w, c], flows [n, h, w, 2] with x first. Pure functions; any thread.
#pragma once

#include <torch/types.h>

namespace lockstep::models {

enum class Outside { kZeros, kBorder };  // what lies outside of a frame: zeros, or its border repeated

// Bilinear, with gradients of frames and flow. Own code on the CPU and on NVIDIA GPUs, PyTorch's grid_sample
// elsewhere.
at::Tensor FlowWarp(const at::Tensor& frames, const at::Tensor& flow, Outside outside = Outside::kZeros);

// The four pixels around each place, [n, h, w, 4c], zeros outside: (floor x, floor y), (floor x, ceil y), (ceil x,
// floor y), (ceil x, ceil y). Gradients of the frames only.
at::Tensor FlowWarpNearest4(const at::Tensor& frames, const at::Tensor& flow);

}  // namespace lockstep::models
