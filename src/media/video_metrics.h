// PSNR and SSIM of reconstructed video, as the restoration literature computes them (KAIR, MATLAB): per frame, on 8-bit
// values. Pure functions of tensors on any device, no gradient; each rank measures its own clips and the caller
// averages.
#pragma once

#include <torch/types.h>

namespace lockstep::media {

// All take clips NTCHW with values in [0, 1] (clamped and rounded to 8 bits first) and return one float64 per clip,
// [N], on the CPU: the mean over its frames. They throw c10::Error on unequal shapes.

// 20 log10(255 / rmse) over all channels of a frame. Equal frames give infinity, as in the reference.
at::Tensor Psnr(const at::Tensor& a, const at::Tensor& b);

// 11x11 Gaussian window of sigma 1.5, valid region only, C1 = (0.01 * 255)^2, C2 = (0.03 * 255)^2, mean over channels.
// Frames must be at least 11 x 11.
at::Tensor Ssim(const at::Tensor& a, const at::Tensor& b);

// The same of luma: Y = (65.481 R + 128.553 G + 24.966 B) / 255 + 16 of the 8-bit values, not rounded, as KAIR's
// validation reports PSNR_Y and SSIM_Y. Three channels, RGB.
at::Tensor PsnrY(const at::Tensor& a, const at::Tensor& b);
at::Tensor SsimY(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::media
