// Passes over the own part on a GPU, one each: the squares of gradients, and AdamW with unscaling and clipping. The
// bits of Adam are those of the host's kernel (kernels.h). Queued on the current stream, safe while a CUDA graph
// records; only where Usable says so. All numbers that change from step to step are read from device memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::engine::device {

bool Usable(const at::Device& device);

// The sum of squares of each block of 16 gradients (float32 or bf16; whole blocks), as kernels::BlockSquares adds them.
// `largest` (one float64) becomes the largest of it and all sums, or not a number where one is.
void BlockSquares(const at::Tensor& gradients, const at::Tensor& sums, const at::Tensor& largest);
// Adds the sums to out[0] + out[1] / 2^30 (int64), in units of 2^-30 of the power of two above `largest`. Nothing where
// that is zero or not finite.
void AddBlocks(const at::Tensor& sums, const at::Tensor& largest, const at::Tensor& out);

struct AdamRates {
  double lr = 0, lr_scale = 1;  // times lr_factor below
  double beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  int decoupled = 1;  // AdamW
};
// What changes: scalars on the device.
struct AdamNumbers {
  at::Tensor lr_factor, factor;  // float64: of the schedule; of the gradients
  at::Tensor step;               // float32, this step's number
  at::Tensor found_inf;          // float32; 1: nothing is done
};
void Adam(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v, const AdamRates& rates,
          const AdamNumbers& numbers);

}  // namespace lockstep::engine::device
