// The norm of gradients on their device, queued without waiting, that does not depend on how they are spread over ranks
// and buckets: the device's counterpart of SquareSum. Blocks of 16 numbers are added in a fixed order; the blocks' sums
// become integers in units of a fraction of the largest block of all ranks, and integers add up exactly.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/status.h"
#include "engine/strategy.h"

namespace lockstep::engine {

// Of the own gradients of all ranks. A float64 scalar; not a number where some gradient is not finite. Can be captured
// in a CUDA graph where the strategy's collectives can.
Result<at::Tensor> GradientNormOnDevice(const OwnedParameters& own, ParallelStrategy* strategy);

}  // namespace lockstep::engine
