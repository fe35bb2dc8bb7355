// Memory of the host for state that does not fit a device. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::engine {

// Zeroed float32 memory of exactly this size, in huge pages where the system has them; each page is taken when it is
// first touched. Throws c10::Error ("not enough memory") where the address space has no room.
at::Tensor HostMemory(int64_t numel);

}  // namespace lockstep::engine
