#include "models/deformable_shape.h"

namespace lockstep::models {

using at::Tensor;

DeformableShape DeformableShapeOf(const Tensor& frames, at::IntArrayRef offset, at::IntArrayRef mask,
                                  const Tensor& weight, const Tensor& bias) {
  DeformableShape s{};
  TORCH_CHECK(frames.dim() == 4 && weight.dim() == 4 && offset.size() == 4 && mask.size() == 4,
              "deformable convolution takes frames [n, h, w, c], found ", frames.sizes(), " and a weight ",
              weight.sizes());
  s.count = frames.size(0), s.height = frames.size(1), s.width = frames.size(2), s.channels = frames.size(3);
  s.out = weight.size(0), s.kernel = weight.size(2), s.taps = s.kernel * weight.size(3);
  s.groups = s.channels / weight.size(1), s.offset_groups = mask[3] / s.taps;
  TORCH_CHECK(s.kernel == weight.size(3) && s.kernel % 2 == 1, "expected an odd square kernel, found ", weight.sizes());
  TORCH_CHECK(s.groups > 0 && s.groups * weight.size(1) == s.channels && s.out % s.groups == 0 && s.offset_groups > 0 &&
                  s.channels % s.offset_groups == 0 && mask[3] == s.offset_groups * s.taps &&
                  offset[3] == 2 * mask[3] && offset.slice(0, 3) == frames.sizes().slice(0, 3) &&
                  mask.slice(0, 3) == frames.sizes().slice(0, 3) && bias.numel() == s.out,
              "deformable convolution: frames ", frames.sizes(), ", offsets ", offset, ", mask ", mask, " and weight ",
              weight.sizes(), " do not fit together");
  return s;
}

Tensor AsMatrices(const Tensor& weight, const DeformableShape& s) {
  return weight.reshape({s.groups, s.out / s.groups, s.PerGroup(), s.taps})
      .permute({0, 3, 2, 1})
      .reshape({s.groups, s.taps * s.PerGroup(), s.out / s.groups})
      .contiguous();
}

Tensor FromMatrices(const Tensor& matrices, const DeformableShape& s) {
  return matrices.view({s.groups, s.taps, s.PerGroup(), s.out / s.groups})
      .permute({0, 3, 2, 1})
      .reshape({s.out, s.PerGroup(), s.kernel, s.kernel});
}

}  // namespace lockstep::models
