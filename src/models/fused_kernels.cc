#include "models/fused_kernels.h"

#include <torch/types.h>

#include "models/fused_source.h"

#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <dlfcn.h>

#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#endif

namespace lockstep::models::fused::kernels {

#ifndef LOCKSTEP_CUDA

bool Usable(const at::Tensor&, int64_t) { return false; }
int64_t SumBlocks() { return 0; }
void Epilogue(const at::Tensor&, Layout, const Shape&, const After&, const at::Tensor&, const at::Tensor&,
              const at::Tensor&, int64_t) {}
void Collect(const Arriving&, const Shape&, Layout, const at::Tensor&, const at::Tensor&) {}
at::Tensor Total(const at::Tensor&, const at::Tensor&) { return {}; }
void Pack(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&) {}
void Unpack(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&) {}

#else

namespace {

// The few entry points needed of two C libraries whose interfaces are stable; torch's CUDA packages carry NVRTC, the
// driver brings the other. Not linked: a machine without them still runs everything else.
struct Libraries {
  int (*nvrtcCreateProgram)(void**, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*nvrtcCompileProgram)(void*, int, const char* const*) = nullptr;
  int (*nvrtcGetCUBINSize)(void*, size_t*) = nullptr;
  int (*nvrtcGetCUBIN)(void*, char*) = nullptr;
  int (*nvrtcGetProgramLogSize)(void*, size_t*) = nullptr;
  int (*nvrtcGetProgramLog)(void*, char*) = nullptr;
  int (*nvrtcDestroyProgram)(void**) = nullptr;
  int (*cuModuleLoadData)(void**, const void*) = nullptr;
  int (*cuModuleGetFunction)(void**, void*, const char*) = nullptr;
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**) = nullptr;
  bool ready = false;

  Libraries() {
    std::string name = "libnvrtc.so." + std::to_string(CUDA_VERSION / 1000);
    dlopen("libcaffe2_nvrtc.so", RTLD_NOW);  // beside torch's libraries; it knows where NVRTC is installed
    void* nvrtc = dlopen(name.c_str(), RTLD_NOW);
    if (nvrtc == nullptr) nvrtc = dlopen("libnvrtc.so", RTLD_NOW);
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (nvrtc == nullptr || driver == nullptr) {
      TORCH_WARN("TAEHV runs without its own kernels: ", nvrtc == nullptr ? name : "libcuda.so.1",
                 " cannot be loaded; put the folder of torch's CUDA libraries into LD_LIBRARY_PATH");
      return;
    }
    ready = Find(nvrtc, "nvrtcCreateProgram", &nvrtcCreateProgram) &&
            Find(nvrtc, "nvrtcCompileProgram", &nvrtcCompileProgram) &&
            Find(nvrtc, "nvrtcGetCUBINSize", &nvrtcGetCUBINSize) && Find(nvrtc, "nvrtcGetCUBIN", &nvrtcGetCUBIN) &&
            Find(nvrtc, "nvrtcGetProgramLogSize", &nvrtcGetProgramLogSize) &&
            Find(nvrtc, "nvrtcGetProgramLog", &nvrtcGetProgramLog) &&
            Find(nvrtc, "nvrtcDestroyProgram", &nvrtcDestroyProgram) &&
            Find(driver, "cuModuleLoadData", &cuModuleLoadData) &&
            Find(driver, "cuModuleGetFunction", &cuModuleGetFunction) &&
            Find(driver, "cuLaunchKernel", &cuLaunchKernel);
  }
  template <typename F>
  static bool Find(void* library, const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    return *function != nullptr;
  }
  static const Libraries& Get() {
    static const Libraries libraries;
    return libraries;
  }
};

enum Kernel { kEpilogue, kEpiloguePhases, kMaskSums, kCollect, kCollectPhases, kTotal, kPack, kUnpack, kKernels };
constexpr const char* kNames[] = {"epilogue",       "epilogue_phases", "mask_sums", "collect",
                                  "collect_phases", "total",           "pack",      "unpack"};
static_assert(std::size(kNames) == kKernels);

struct Module {
  std::array<void*, kKernels> functions{};
  bool ready = false;
};

int KindOf(at::ScalarType type) {
  return type == at::kFloat ? 0 : type == at::kBFloat16 ? 1 : type == at::kHalf ? 2 : -1;
}

Module Compile(int kind, int device) {
  Module result;
  const Libraries& lib = Libraries::Get();
  cudaDeviceProp* about = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  if (!lib.ready || about->major < 8) return result;  // bfloat16 conversions
  std::string arch = "--gpu-architecture=sm_" + std::to_string(about->major * 10 + about->minor);
  std::string define = "-DKIND=" + std::to_string(kind);
  const char* options[] = {arch.c_str(), define.c_str(), "-default-device", "--std=c++17"};
  void* program = nullptr;
  if (lib.nvrtcCreateProgram(&program, kSource, "taehv.cu", 0, nullptr, nullptr) != 0) return result;
  int error = lib.nvrtcCompileProgram(program, 4, options);
  if (error != 0) {
    size_t size = 0;
    lib.nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    lib.nvrtcGetProgramLog(program, log.data());
    TORCH_WARN("TAEHV runs without its own kernels, they do not compile here (", arch, "): ", log);
    lib.nvrtcDestroyProgram(&program);
    return result;
  }
  size_t size = 0;
  lib.nvrtcGetCUBINSize(program, &size);
  std::string binary(size, '\0');
  lib.nvrtcGetCUBIN(program, binary.data());
  lib.nvrtcDestroyProgram(&program);
  void* module = nullptr;  // lives as long as the process
  error = lib.cuModuleLoadData(&module, binary.data());
  for (int i = 0; i < kKernels && error == 0; ++i) {
    error = lib.cuModuleGetFunction(&result.functions[i], module, kNames[i]);
  }
  result.ready = error == 0;
  if (!result.ready) TORCH_WARN("TAEHV runs without its own kernels: CUDA error ", error, " while loading them");
  return result;
}

// The driver's functions need the runtime's context in this thread; the guard skips the call for device 0.
void MakeCurrent(const at::Device& device) {
  thread_local int current = -1;
  if (current == device.index()) return;
  C10_CUDA_CHECK(cudaSetDevice(device.index()));
  current = device.index();
}

const Module& ModuleFor(const at::Tensor& x) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, Module> modules;
  std::pair<int, int> key(x.device().index(), KindOf(x.scalar_type()));
  std::lock_guard lock(mutex);
  auto found = modules.find(key);
  if (found == modules.end()) {
    c10::cuda::CUDAGuard guard(x.device());
    MakeCurrent(x.device());
    found = modules.emplace(key, Compile(key.second, key.first)).first;
  }
  return found->second;
}

struct Size {
  int frames, height, width, channels;
  unsigned rows;
};

Size SizeOf(const Shape& shape) {
  return {int(shape.frames), int(shape.height), int(shape.width), int(shape.channels),
          unsigned(shape.Count() * shape.height * shape.width)};
}

void* Address(const at::Tensor& x) { return x.defined() ? const_cast<void*>(x.const_data_ptr()) : nullptr; }

void Launch(const at::Tensor& like, Kernel kernel, unsigned blocks, unsigned rows, unsigned threads,
            std::vector<void*> arguments, unsigned thread_rows = 1) {
  c10::cuda::CUDAGuard guard(like.device());
  MakeCurrent(like.device());
  void* stream = at::cuda::getCurrentCUDAStream().stream();
  int error = Libraries::Get().cuLaunchKernel(ModuleFor(like).functions[kernel], blocks, rows, 1, threads, thread_rows,
                                              1, 0, stream, arguments.data(), nullptr);
  TORCH_CHECK(error == 0, "TAEHV's kernel ", kNames[kernel], " was not started: CUDA error ", error);
}

unsigned Threads(int64_t channels) { return unsigned(256 / (channels / 8) * (channels / 8)); }

constexpr unsigned kItems = 32;
struct Item {
  void *wide, *narrow;
  int in, taps, count, unused;
};
struct Items {
  Item item[kItems];
};

void Repack(Kernel kernel, const std::vector<at::Tensor>& wide, const std::vector<at::Tensor>& narrow) {
  for (size_t begin = 0; begin < wide.size(); begin += kItems) {
    Items items{};
    unsigned count = unsigned(std::min<size_t>(kItems, wide.size() - begin));
    for (unsigned i = 0; i < count; ++i) {
      const at::Tensor& w = wide[begin + i];
      bool weight = w.dim() == 4;
      items.item[i] = {Address(w),
                       Address(narrow[begin + i]),
                       int(w.size(weight ? 1 : 0)),
                       weight ? int(w.size(2) * w.size(3)) : 1,
                       int(w.numel()),
                       0};
    }
    Launch(narrow[begin], kernel, 64, count, 256, {&items});
  }
}

}  // namespace

bool Usable(const at::Tensor& x, int64_t channels) {
  if (!x.is_cuda() || channels % 8 != 0 || channels > 2048 || KindOf(x.scalar_type()) < 0) return false;
  return x.numel() / 8 < (int64_t(1) << 31) && ModuleFor(x).ready;
}

int64_t SumBlocks() { return 132 * 6; }

void Epilogue(const at::Tensor& z, Layout layout, const Shape& shape, const After& after, const at::Tensor& first,
              const at::Tensor& cat, const at::Tensor& out, int64_t out_group) {
  Size size = SizeOf(shape);
  void *from = Address(z), *bias = Address(after.bias), *residual = Address(after.residual), *past = Address(first),
       *to_cat = Address(cat), *to_out = Address(out);
  int group = int(layout.group), relu = after.relu, to_group = int(out_group);
  unsigned threads = Threads(shape.channels), step = threads / unsigned(shape.channels / 8);
  unsigned blocks = std::min<unsigned>((size.rows + step - 1) / step, 132 * 16);
  Launch(z, layout.phases ? kEpiloguePhases : kEpilogue, blocks, 1, threads,
         {&from, &group, &bias, &residual, &relu, &past, &to_cat, &to_out, &to_group, &size});
}

void Collect(const Arriving& from, const Shape& shape, Layout layout, const at::Tensor& into, const at::Tensor& sums) {
  Size size = SizeOf(shape);
  void *direct = Address(from.direct), *both = Address(from.both), *active = Address(from.active), *to = Address(into),
       *total = Address(sums);
  int direct_group = int(from.direct_group), active_group = int(from.active_group), past = from.active_with_past,
      group = int(layout.group);
  unsigned threads = Threads(shape.channels), blocks = unsigned(SumBlocks());
  bool dense = direct != nullptr && active != nullptr && both == nullptr && !past && !layout.phases &&
               direct_group == 1 && active_group == 1 && group == 1;
  if (dense && total != nullptr) {
    Launch(into, kMaskSums, blocks, 1, threads, {&direct, &active, &to, &total, &size});
    return;
  }
  Launch(into, layout.phases ? kCollectPhases : kCollect, blocks, 1, threads,
         {&direct, &direct_group, &both, &active, &active_group, &past, &to, &group, &total, &size});
}

at::Tensor Total(const at::Tensor& sums, const at::Tensor& like) {
  at::Tensor out = at::empty({sums.size(0), sums.size(2)}, sums.options());
  void *from = Address(sums), *to = Address(out);
  int blocks = int(sums.size(1)), channels = int(sums.size(2));
  Launch(like, kTotal, unsigned(channels + 31) / 32, unsigned(sums.size(0)), 32, {&from, &to, &blocks, &channels}, 32);
  return out;
}

void Pack(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& into) {
  Repack(kPack, parameters, into);
}

void Unpack(const std::vector<at::Tensor>& gradients, const std::vector<at::Tensor>& into) {
  Repack(kUnpack, into, gradients);
}

#endif

}  // namespace lockstep::models::fused::kernels
