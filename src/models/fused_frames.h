// How frames lie in memory between the convolutions of the fast execution, and the passes that move them from one
// layout to another. All tensors are channels-last. Pure functions, any thread; each works on every device and type, as
// ATen operators or as one CUDA kernel (fused_kernels.h) where those are usable.
//
// Layouts of n frames of c channels, h x w, that belong to clips of T:
//   plain          (n, c, h, w)
//   grouped by s   (n / s, s * c, h, w): s consecutive frames side by side, what a pooling of time reads or a growing
//                  of time writes
//   phases         (n / s, s * 4 * c, h / 2 + 1, w / 2 + 1): what an enlarging convolution writes. Pixel (2i+a, 2j+b)
//   of
//                  frame k of a group is at (i + a, j + b), channels from (4k + 2a + b) * c on; the places no pixel
//                  uses are never read and hold zeros in gradients.
//   with past      (n, 2 * c, h, w): each frame, and behind it the frame before it of the same clip (zeros or a memory
//                  before the first).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::models::fused {

inline constexpr at::MemoryFormat kLast = at::MemoryFormat::ChannelsLast;

struct Layout {
  bool phases = false;
  int64_t group = 1;
};

struct Shape {
  int64_t clips = 1, frames = 1;  // frames of one clip
  int64_t channels = 0, height = 0, width = 0;
  int64_t Count() const { return clips * frames; }
};

// What happens to a convolution's output: + bias, + residual (the first half of a tensor with past), relu. Where
// anything is asked for, the output itself may be overwritten.
struct After {
  at::Tensor bias, residual;
  bool relu = false;
};

// first: (clips, c, h, w), the frame before each clip; undefined: zeros.
at::Tensor WithPast(const at::Tensor& z, Layout layout, const Shape& shape, const After& after,
                    const at::Tensor& first = {});
at::Tensor Regroup(const at::Tensor& z, Layout layout, const Shape& shape, const After& after, int64_t group);

// Gradients that meet at one tensor: the sum of `direct` (grouped) and of `both` (with past: a frame gets its own half
// and the next frame's other half), passed on where `active` is positive.
struct Arriving {
  at::Tensor direct;
  int64_t direct_group = 1;
  bool overwrite = false;  // direct and the result are plain, and may be the same memory
  at::Tensor both;
  at::Tensor active;  // grouped by active_group, or with past
  int64_t active_group = 1;
  bool active_with_past = false;
};
// Into the layout, plus the sum per channel over all pixels when `sums` asks for it: one of the `count` sets of
// SumsFor, for TotalOf. Undefined SumsFor: not offered here, take it from elsewhere.
at::Tensor Collect(const Arriving& from, const Shape& shape, Layout layout, const at::Tensor& sums = {});
at::Tensor SumsFor(const at::Tensor& like, int64_t channels, int64_t count);
at::Tensor TotalOf(const at::Tensor& sums, const at::Tensor& like);  // (count, channels)

// The pixels of a phases tensor that belong to no frame become zero, in place.
void ClearEdges(const at::Tensor& phases, int64_t channels);

// An empty channels-last tensor of that type and device.
at::Tensor EmptyLast(const at::Tensor& like, int64_t n, int64_t c, int64_t h, int64_t w);

}  // namespace lockstep::models::fused
