#include "models/resize.h"

#include <ATen/Context.h>

namespace lockstep::models {
namespace {

using at::Tensor;

bool NeedsFixedOrder(const Tensor& x) {
  return x.is_cuda() && x.requires_grad() && at::globalContext().deterministicAlgorithms();
}

// [to, from]: the weights of linear interpolation, a hat around the place of each output.
Tensor WeightsOf(int64_t from, int64_t to, bool align_corners, const at::TensorOptions& options) {
  Tensor place = at::arange(to, options);
  if (align_corners) {
    place = place * (to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0.0);
  } else {
    place = ((place + 0.5) * (static_cast<double>(from) / static_cast<double>(to)) - 0.5).clamp(0, from - 1);
  }
  return (1 - (place.unsqueeze(1) - at::arange(from, options)).abs()).clamp_min(0);
}

}  // namespace

Tensor ResizeBilinear(const Tensor& x, int64_t height, int64_t width, bool align_corners) {
  if (x.size(2) == height && x.size(3) == width) return x;
  if (NeedsFixedOrder(x)) return ResizeByProducts(x, height, width, align_corners);
  return at::upsample_bilinear2d(x, {height, width}, align_corners);
}

Tensor PadByReflection(const Tensor& x, int64_t pixels) {
  if (NeedsFixedOrder(x)) return PadByCopies(x, pixels);
  return at::reflection_pad2d(x, {pixels, pixels, pixels, pixels});
}

Tensor ResizeByProducts(const Tensor& x, int64_t height, int64_t width, bool align_corners) {
  const at::TensorOptions options = x.options().requires_grad(false);
  const Tensor rows = WeightsOf(x.size(2), height, align_corners, options);
  const Tensor columns = WeightsOf(x.size(3), width, align_corners, options);
  return at::matmul(rows, at::matmul(x, columns.t()));
}

Tensor PadByCopies(const Tensor& x, int64_t pixels) {
  Tensor y = x;
  for (const int64_t axis : {2, 3}) {
    const int64_t size = y.size(axis);
    y = at::cat({y.narrow(axis, 1, pixels).flip(axis), y, y.narrow(axis, size - 1 - pixels, pixels).flip(axis)}, axis);
  }
  return y;
}

Tensor OnDevice(at::ArrayRef<double> values, const at::TensorOptions& options) {
  Tensor all = at::empty({static_cast<int64_t>(values.size())}, options.requires_grad(false));
  for (size_t i = 0; i < values.size(); ++i) all.select(0, static_cast<int64_t>(i)).fill_(values[i]);
  return all;
}

}  // namespace lockstep::models
