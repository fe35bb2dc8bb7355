#include "engine/parallel.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <latch>
#include <memory>

namespace lockstep::engine {

void ParallelFor(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& work) {
  const int64_t count = end - begin;
  if (count <= 0) return;
  const int64_t parts = std::min<int64_t>(at::get_num_threads(), (count + grain - 1) / grain);
  if (parts <= 1) return work(begin, end);
  const int64_t each = std::max(grain, (count + parts - 1) / parts);
  const int64_t others = (count + each - 1) / each - 1;
  // Shared: the last one to count down still touches it when the caller has gone on.
  const auto done = std::make_shared<std::latch>(others);
  for (int64_t part = 1; part <= others; ++part) {
    at::launch([&work, done, end, each, first = begin + part * each] {
      work(first, std::min(end, first + each));
      done->count_down();
    });
  }
  work(begin, std::min(end, begin + each));
  done->wait();
}

}  // namespace lockstep::engine
