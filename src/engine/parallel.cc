#include "engine/parallel.h"

#include <ATen/Parallel.h>

#include "base/parallel.h"

namespace lockstep::engine {

void ParallelFor(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& work) {
  lockstep::ParallelFor(at::get_num_threads(), begin, end, grain, work);
}

}  // namespace lockstep::engine
