// base/parallel.h on the rank's threads (train.threads).
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::engine {

// No range is smaller than `grain`, but for the last one.
void ParallelFor(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& work);

}  // namespace lockstep::engine
