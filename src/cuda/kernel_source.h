// CUDA kernels from source text, compiled by NVRTC for the device they first run on. torch's CUDA packages carry NVRTC;
// where it is missing, or does not compile, callers have a composition of ATen's operators. Safe to use from any thread
// and while a CUDA graph records (compile before: Usable does); launches do not synchronise.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::cuda {

struct Grid {
  unsigned blocks = 1, rows = 1, threads = 1, thread_rows = 1;
  unsigned shared = 0;  // bytes of shared memory beside what the kernel declares
};

// One source and the kernels in it. Its text sees KIND: 0 for float, 1 for bfloat16, 2 for half, the type of `like`
// below. Make it static: a loaded module lives as long as the process.
class KernelSource {
 public:
  // `who` is for messages: "TAEHV".
  KernelSource(std::string who, const char* source, std::vector<const char*> kernels)
      : who_(std::move(who)), source_(source), names_(std::move(kernels)) {}
  KernelSource(const KernelSource&) = delete;
  KernelSource& operator=(const KernelSource&) = delete;

  // Whether kernels run on this device in this type. Compiles at the first call for each; warns once when that fails.
  bool Usable(const at::Device& device, at::ScalarType type);
  // On the current stream of `like`'s device. `arguments` are the addresses of the kernel's arguments.
  void Launch(const at::Tensor& like, int kernel, const Grid& grid, std::vector<void*> arguments);

 private:
  struct Module {
    std::vector<void*> functions;
    bool ready = false;
  };
  const Module& ModuleFor(const at::Device& device, at::ScalarType type);
  Module Compile(int kind, int device) const;

  std::string who_;
  const char* source_;
  std::vector<const char*> names_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Module> modules_;  // by device and kind
};

// Bytes of shared memory that a block of threads may ask for on this device; 0 where there is none.
int64_t MostShared(const at::Device& device);

// For arguments that may be missing.
inline void* Address(const at::Tensor& x) { return x.defined() ? const_cast<void*>(x.const_data_ptr()) : nullptr; }

// What every source begins with: loads and stores of eight elements at a time as float, of Elem (the type of KIND) and
// of float.
extern const char kPrelude[];

}  // namespace lockstep::cuda
