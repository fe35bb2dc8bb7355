#include "engine/host_memory.h"

#include <sys/mman.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>

#include "base/log.h"
#include "base/units.h"
#include "engine/parallel.h"

#ifdef LOCKSTEP_CUDA
#include <cuda_runtime_api.h>
#endif

namespace lockstep::engine {
namespace {

constexpr int64_t kSmallestPage = 4096;

class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(data_ != MAP_FAILED, "not enough memory: ", bytes, " bytes of host memory");
    madvise(data_, bytes, MADV_HUGEPAGE);
  }
  ~Mapping() {
#ifdef LOCKSTEP_CUDA
    if (registered_) (void)cudaHostUnregister(data_);
#endif
    munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;

  // Each page is taken by the thread that writes its first byte; `chunk` in bytes.
  void Touch(int64_t chunk) {
    const auto bytes = static_cast<int64_t>(bytes_);
    for (int64_t first = 0; first < bytes; first += chunk) {
      ParallelFor(first, std::min(bytes, first + chunk), kSmallestPage, [this](int64_t begin, int64_t end) {
        auto* memory = static_cast<volatile char*>(data_);
        for (int64_t at = begin; at < end; at += kSmallestPage) memory[at] = 0;
      });
    }
  }

  // In one piece: a copy must not cross the border of two registrations.
  void Pin() {
#ifdef LOCKSTEP_CUDA
    const cudaError_t error = cudaHostRegister(data_, bytes_, cudaHostRegisterPortable);
    registered_ = error == cudaSuccess;
    if (registered_) return;
    (void)cudaGetLastError();  // it would be taken for the next call's
    LogWarn(
        "{} of host memory cannot be pinned ({}): copies to the GPU are slower; raise the limit of locked memory "
        "(ulimit -l)",
        FormatSize(bytes_), cudaGetErrorString(error));
#endif
  }

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  [[maybe_unused]] bool registered_ = false;
};

}  // namespace

at::Tensor HostMemory(int64_t numel, const HostMemoryOptions& options) {
  const auto size = static_cast<int64_t>(c10::elementSize(options.type));
  const int64_t bytes = std::max<int64_t>(numel, 1) * size;
  auto mapping = std::make_shared<Mapping>(static_cast<size_t>(bytes));
  mapping->Touch(options.chunk > 0 ? options.chunk * size : bytes);
  if (options.pinned) mapping->Pin();
  void* data = mapping->data();
  return at::from_blob(data, {numel}, [mapping](void*) {}, at::TensorOptions().dtype(options.type));
}

}  // namespace lockstep::engine
