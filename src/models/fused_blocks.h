// The pieces the fast execution of TAEHV is made of: runs of memory blocks, and convolutions that stand for several
// layers without anything nonlinear between them. Differentiable once; gradients arrive at the parameters themselves,
// in their type and shape. Every function takes parameters as the layers hold them and computes in `type`, merging
// weights in the parameters' own precision first. Any thread; pure except where said; safe while a CUDA graph records.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "models/fused_frames.h"
#include "models/taehv_layers.h"

namespace lockstep::models::fused {

// Weights for at::conv2d, channels-last, in `type`.

// `frames` pooled by a 1x1 convolution, then 3x3: one 3x3 from grouped frames. pool (k, frames * c, 1, 1), conv (o, k,
// 3, 3) -> (o, frames * c, 3, 3).
at::Tensor MergePool(const at::Tensor& pool, const at::Tensor& conv, at::ScalarType type);
// Pixels repeated `factor` (1 or 2) times per side, grown to `frames` by a 1x1, then 3x3. grow (frames * c, i, 1, 1),
// conv (o, c, 3, 3) -> (frames * o, i, 3, 3) for factor 1; (frames * 4 * o, i, 2, 2) for 2, whose output with padding 1
// has the layout `phases`: 4/9 of the multiplications and no enlarged input.
at::Tensor MergeGrow(const at::Tensor& grow, const at::Tensor& conv, int64_t factor, at::ScalarType type);
// A 3x3 that reads frames in `phases` (their edges cleared) as a 2x2 without padding that writes (frames * 4 * o, h /
// 2, w / 2): pixel (2i+a, 2j+b) of frame k at (i, j), channels from (4k + 2a + b) * o on. (4 * o, 4 * c, 2, 2), of one
// frame.
at::Tensor PhasesOf(const at::Tensor& conv);
// The same weight for each of `frames` frames side by side, filled up with zeros to `in` and `out` channels.
at::Tensor ForGroup(const at::Tensor& conv, int64_t frames, int64_t in, int64_t out, at::ScalarType type);

// A 3x3 on few channels as a 3x1 (padding {1, 0}) on three times as many, each pixel beside its neighbours, filled up
// with zeros to `channels`: tensor cores multiply at least 16 at a time, whether they are there or not. No gradient for
// x.
at::Tensor ColumnsOf(const at::Tensor& conv, int64_t channels);
at::Tensor Columns(const at::Tensor& x, int64_t channels, at::ScalarType type);

// relu(conv(x) + bias); weight from above, in x's type; bias: a parameter or undefined. clear > 0: the output is
// `phases` of that many channels, edges cleared.
at::Tensor ConvRelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, at::IntArrayRef padding,
                    int64_t clear = 0);

// Memory blocks one after another, from z (layout) to frames grouped by out_group. memories: of each block, to be read
// and replaced (no gradients then), or none.
at::Tensor RunBlocks(const std::vector<taehv::MemBlock*>& blocks, const at::Tensor& z, Layout layout,
                     const Shape& shape, int64_t out_group, const std::vector<taehv::LayerMemory*>& memories);

}  // namespace lockstep::models::fused
