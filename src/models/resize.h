// Bilinear resizing and reflection padding of frames [n, c, h, w], with gradients. On a GPU PyTorch's own have no
// deterministic backward; where deterministic algorithms are asked for, these are products with the matrix of the
// weights, and copies. Pure functions; any thread; safe while a CUDA graph records.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace lockstep::models {

at::Tensor ResizeBilinear(const at::Tensor& x, int64_t height, int64_t width, bool align_corners);
at::Tensor PadByReflection(const at::Tensor& x, int64_t pixels);  // on all four sides

// What those use where deterministic algorithms are asked for.
at::Tensor ResizeByProducts(const at::Tensor& x, int64_t height, int64_t width, bool align_corners);
at::Tensor PadByCopies(const at::Tensor& x, int64_t pixels);

// A tensor [values] on the device of `options`, without a copy from the host.
at::Tensor OnDevice(at::ArrayRef<double> values, const at::TensorOptions& options);

}  // namespace lockstep::models
