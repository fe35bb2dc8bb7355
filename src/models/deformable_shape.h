// What the arguments of a deformable convolution say about its sizes, and its weight as matrices. Plain values.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace lockstep::models {

struct DeformableShape {
  int64_t count, height, width, channels, out, taps, kernel, offset_groups, groups;
  int64_t pixels() const { return height * width; }
  int64_t PerOffsetGroup() const { return channels / offset_groups; }
  int64_t PerGroup() const { return channels / groups; }
};

// From frames [n, h, w, c], a weight [out, c / groups, k, k] with its bias, and the sizes of offset and mask.
DeformableShape DeformableShapeOf(const at::Tensor& frames, at::IntArrayRef offset, at::IntArrayRef mask,
                                  const at::Tensor& weight, const at::Tensor& bias);

// [out, c / groups, k, k] as one matrix for each group: [groups, k * k * c / groups, out / groups], and back.
at::Tensor AsMatrices(const at::Tensor& weight, const DeformableShape& shape);
at::Tensor FromMatrices(const at::Tensor& matrices, const DeformableShape& shape);

}  // namespace lockstep::models
