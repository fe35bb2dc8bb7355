// Warping and deformable sampling as CUDA kernels, one pass over memory each. Only where Usable says so. All tensors
// are contiguous; frames, columns and raw tensors have one type, flows, offsets and masks are float32. Safe while a
// CUDA graph records; no synchronisation.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/deformable_shape.h"

namespace lockstep::models::warp {

// Frames on this device in this type: float32, bfloat16, half.
bool Usable(const at::Device& device, at::ScalarType type);

// Gradients of frames, collected by many threads at once. In float32 the order of additions varies from run to run;
// with PyTorch's deterministic algorithms they are 64-bit fixed point, and the bits are the same every time.
class FrameSums {
 public:
  FrameSums() = default;  // not wanted
  // `bound`: a function that gives the largest absolute value one addition may have, as a tensor; only called with
  // deterministic algorithms.
  template <typename Bound>
  FrameSums(const at::Tensor& frames, const Bound& bound) {
    if (Deterministic()) {
      Begin(frames, bound());
    } else {
      Begin(frames, {});
    }
  }
  at::Tensor Result(at::ScalarType type) const;  // undefined where not wanted

  at::Tensor sums;          // float32, or
  at::Tensor fixed, scale;  // int64, and how many of it are one

 private:
  static bool Deterministic();
  void Begin(const at::Tensor& frames, const at::Tensor& bound);
};

// What a deformable convolution reads: frames, and offsets and a mask as they are, or (`raw`, `flows`) as
// FlowGuidedDeformable has them.
struct Deform {
  DeformableShape shape;
  at::Tensor frames;
  at::Tensor offset, mask;
  at::Tensor raw;
  std::vector<at::Tensor> flows;
  double reach = 0;
};

// Samples for pixels [first, first + count) of all frames: [groups, count, taps * channels of a group].
void SampleColumns(const Deform& deform, int64_t first, int64_t count, const at::Tensor& columns);

struct DeformGradients {
  at::Tensor offset, mask;        // or
  at::Tensor raw;                 // and
  std::vector<at::Tensor> flows;  // empty: not wanted
  FrameSums frames;
};
// From the gradient of the columns, which become the columns themselves where `refill`.
void SpreadColumns(const Deform& deform, int64_t first, int64_t count, const at::Tensor& columns, bool refill,
                   const DeformGradients& gradients);

// FlowWarp and FlowWarpNearest4 of flow_warp.h.
at::Tensor Warp(const at::Tensor& frames, const at::Tensor& flow, bool border);
void WarpBackward(const at::Tensor& frames, const at::Tensor& flow, bool border, const at::Tensor& gradient,
                  const FrameSums& d_frames, const at::Tensor& d_flow);  // undefined: not wanted
at::Tensor Nearest4(const at::Tensor& frames, const at::Tensor& flow);
void Nearest4Backward(const at::Tensor& flow, const at::Tensor& gradient, const FrameSums& d_frames);

}  // namespace lockstep::models::warp
