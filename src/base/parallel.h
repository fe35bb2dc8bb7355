// A loop over flat memory shared out to threads that wait for the next one. at::parallel_for does this inside LibTorch
// only: its header runs single-threaded in code built without OpenMP, and LibTorch's OpenMP runtime is not the
// compiler's. Any thread may call it; `work` gets ranges that cover [begin, end) and must not throw.
//
// Loops over the same range are divided alike, and part k of each runs in the same place: where the process may use
// several NUMA nodes, the threads for part k stay on one of them. So memory that a loop has touched first lies where
// later loops need it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep {

// On at most `threads` threads. No range is smaller than `grain`, but for the last one.
void ParallelFor(int threads, int64_t begin, int64_t end, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& work);

// The CPUs of this list, by node, that each of `threads` threads stays on; empty lists where there is one node.
std::vector<std::vector<int>> CpusOfThreads(const std::vector<std::vector<int>>& cpus_of_nodes, size_t threads);

}  // namespace lockstep
