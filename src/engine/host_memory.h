// Memory of the host for state that is updated there: what does not fit a device, or all of it where the device is the
// CPU. Huge pages, exactly the size that is asked for, taken when it is made: by the threads that will work on it, so
// that it lies on their NUMA nodes (parallel.h). The training thread; not collective.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::engine {

// Elements that an offloaded update works on at once, and so the elements whose threads are chosen together.
constexpr int64_t kHostChunk = int64_t{1} << 22;

struct HostMemoryOptions {
  at::ScalarType type = at::kFloat;
  int64_t chunk = kHostChunk;  // loops over it go by so many elements; 0: over all of it
  // A device copies from it or into it: its pages are registered with the device's driver once they are there. Where
  // that fails a warning is given, and copies are slower. Without a GPU there is nothing to register.
  bool pinned = false;
};

// Zeroed. Throws c10::Error ("not enough memory") where the address space has no room.
at::Tensor HostMemory(int64_t numel, const HostMemoryOptions& options = {});

}  // namespace lockstep::engine
