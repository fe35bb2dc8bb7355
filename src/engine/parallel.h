// A loop over flat memory shared out to the rank's threads (train.threads). at::parallel_for does this inside LibTorch
// only: its header runs single-threaded in code built without OpenMP, and LibTorch's OpenMP runtime is not the
// compiler's. Any thread may call it; `work` gets ranges that cover [begin, end) and must not throw.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::engine {

// No range is smaller than `grain`, but for the last one.
void ParallelFor(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& work);

}  // namespace lockstep::engine
