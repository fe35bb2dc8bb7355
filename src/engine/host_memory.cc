#include "engine/host_memory.h"

#include <sys/mman.h>
#include <torch/types.h>

#include <algorithm>

namespace lockstep::engine {

at::Tensor HostMemory(int64_t numel) {
  const size_t bytes = static_cast<size_t>(std::max<int64_t>(numel, 1)) * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TORCH_CHECK(memory != MAP_FAILED, "not enough memory: ", bytes, " bytes of host memory for offloaded state");
  madvise(memory, bytes, MADV_HUGEPAGE);
  return at::from_blob(
      memory, {numel}, [bytes](void* at) { munmap(at, bytes); }, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace lockstep::engine
