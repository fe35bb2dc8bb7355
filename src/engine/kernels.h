// Loops over flat fp32 buffers on the CPU: one pass each, compiled for several instruction sets and chosen at start.
// Raw pointers and no threads: callers split the work. Results do not depend on how it is split.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::engine::kernels {

struct AdamStep {
  float lr = 0;     // of this step
  float decay = 1;  // 1 - lr * weight_decay for AdamW, 1 otherwise
  float l2 = 0;     // added to the gradient as l2 * parameter (Adam), 0 for AdamW
  float beta1 = 0, beta2 = 0, epsilon = 0;
  float correction1 = 1;  // 1 - beta1^t
  float correction2 = 1;  // sqrt(1 - beta2^t)
  float gradient = 1;     // factor on the gradient: unscale, normalise and clip in the same pass
};
void Adam(float* p, const float* g, float* m, float* v, size_t n, const AdamStep& step);
// The same with gradients in bf16 or float32, and the updated parameters also written as bf16 (rounded to nearest
// even): what an offloaded step does in one pass over memory.
void AdamToBf16(float* p, const float* g, float* m, float* v, uint16_t* bf16, size_t n, const AdamStep& step);
void AdamFromBf16(float* p, const uint16_t* g, float* m, float* v, uint16_t* bf16, size_t n, const AdamStep& step);

struct SgdStep {
  float lr = 0, l2 = 0, momentum = 0, gradient = 1;
  bool nesterov = false, first = false;  // first: the momentum buffer starts as the gradient
};
void Sgd(float* p, const float* g, float* momentum, size_t n, const SgdStep& step);

// average = average + (1 - decay) * (p - average)
void Average(float* average, const float* p, size_t n, float decay);

// The sum of squares of each block of 16 numbers, in double, in a fixed order; a last, shorter block counts as if it
// were filled up with zeros. The number of blocks.
constexpr size_t kSquareBlock = 16;
size_t BlockSquares(const float* values, size_t n, double* sums);

}  // namespace lockstep::engine::kernels
