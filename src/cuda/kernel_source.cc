#include "cuda/kernel_source.h"

#include <torch/types.h>

#ifdef LOCKSTEP_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <dlfcn.h>
#endif

namespace lockstep::cuda {

const char kPrelude[] = R"cuda(
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
struct F8 { float v[8]; };

__device__ __forceinline__ F8 Load(const float* p) {
  float4 a = *(const float4*)p, b = *(const float4*)(p + 4);
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}
__device__ __forceinline__ void Store(float* p, const F8& f) {
  *(float4*)p = make_float4(f.v[0], f.v[1], f.v[2], f.v[3]);
  *(float4*)(p + 4) = make_float4(f.v[4], f.v[5], f.v[6], f.v[7]);
}
__device__ __forceinline__ float One(const float* p) { return *p; }
__device__ __forceinline__ void SetOne(float* p, float f) { *p = f; }
#if KIND == 0
typedef float Elem;
#else
typedef u16 Elem;
__device__ __forceinline__ float Up(u32 h) {
#if KIND == 1
  return __uint_as_float(h << 16);
#else
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)h));
  return f;
#endif
}
__device__ __forceinline__ u32 Down(float a, float b) {
  u32 r;
#if KIND == 1
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
#endif
  return r;
}
__device__ __forceinline__ F8 Load(const u16* p) {
  uint4 a = *(const uint4*)p;
  return {{Up(a.x & 0xffff), Up(a.x >> 16), Up(a.y & 0xffff), Up(a.y >> 16), Up(a.z & 0xffff), Up(a.z >> 16),
           Up(a.w & 0xffff), Up(a.w >> 16)}};
}
__device__ __forceinline__ void Store(u16* p, const F8& f) {
  *(uint4*)p = make_uint4(Down(f.v[0], f.v[1]), Down(f.v[2], f.v[3]), Down(f.v[4], f.v[5]), Down(f.v[6], f.v[7]));
}
__device__ __forceinline__ float One(const u16* p) { return Up(*p); }
__device__ __forceinline__ void SetOne(u16* p, float f) { *p = (u16)Down(f, 0.f); }

// Products of 16 x 16 (or 8) by 16 x 8 elements on tensor cores, and their operands from shared memory.
#if KIND == 1
#define HALF "bf16"
#else
#define HALF "f16"
#endif
__device__ __forceinline__ void Mma(float (&c)[4], const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF "." HALF ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void Mma8(float (&c)[4], const u32* a, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." HALF "." HALF ".f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b));
}
__device__ __forceinline__ void Ldm4(u32 (&r)[4], const Elem* at) {
  u32 address = (u32)__cvta_generic_to_shared(at);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
__device__ __forceinline__ void Ldm4T(u32 (&r)[4], const Elem* at) {
  u32 address = (u32)__cvta_generic_to_shared(at);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}
__device__ __forceinline__ void Ldm2(u32& r0, u32& r1, const Elem* at) {
  u32 address = (u32)__cvta_generic_to_shared(at);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(address));
}
__device__ __forceinline__ void Ldm2T(u32& r0, u32& r1, const Elem* at) {
  u32 address = (u32)__cvta_generic_to_shared(at);
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r0), "=r"(r1) : "r"(address));
}
#endif
__device__ __forceinline__ F8 Zero() { return {{0, 0, 0, 0, 0, 0, 0, 0}}; }
)cuda";

#ifndef LOCKSTEP_CUDA

bool KernelSource::Usable(const at::Device&, at::ScalarType) { return false; }
void KernelSource::Launch(const at::Tensor&, int, const Grid&, std::vector<void*>) {}
int64_t MostShared(const at::Device&) { return 0; }

#else

namespace {

// The few entry points needed of two C libraries whose interfaces are stable. Not linked: a machine without them still
// runs everything else.
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
  int (*cuFuncSetAttribute)(void*, int, int) = nullptr;
  bool ready = false;

  Libraries() {
    std::string name = "libnvrtc.so." + std::to_string(CUDA_VERSION / 1000);
    dlopen("libcaffe2_nvrtc.so", RTLD_NOW);  // beside torch's libraries; it knows where NVRTC is installed
    void* nvrtc = dlopen(name.c_str(), RTLD_NOW);
    if (nvrtc == nullptr) nvrtc = dlopen("libnvrtc.so", RTLD_NOW);
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (nvrtc == nullptr || driver == nullptr) {
      TORCH_WARN("the run does without its own kernels: ", nvrtc == nullptr ? name : "libcuda.so.1",
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
            Find(driver, "cuLaunchKernel", &cuLaunchKernel) && Find(driver, "cuFuncSetAttribute", &cuFuncSetAttribute);
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

int KindOf(at::ScalarType type) {
  return type == at::kFloat ? 0 : type == at::kBFloat16 ? 1 : type == at::kHalf ? 2 : -1;
}

// The driver's functions need the runtime's context in this thread; the guard skips the call for device 0.
void MakeCurrent(const at::Device& device) {
  thread_local int current = -1;
  if (current == device.index()) return;
  C10_CUDA_CHECK(cudaSetDevice(device.index()));
  current = device.index();
}

}  // namespace

int64_t MostShared(const at::Device& device) {
  return device.is_cuda() ? static_cast<int64_t>(at::cuda::getDeviceProperties(device.index())->sharedMemPerBlockOptin)
                          : 0;
}

KernelSource::Module KernelSource::Compile(int kind, int device) const {
  Module result;
  const Libraries& lib = Libraries::Get();
  cudaDeviceProp* about = at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(device));
  if (!lib.ready || about->major < 8) return result;  // bfloat16 conversions
  const std::string arch = "--gpu-architecture=sm_" + std::to_string(about->major * 10 + about->minor);
  const std::string define = "-DKIND=" + std::to_string(kind);
  const char* options[] = {arch.c_str(), define.c_str(), "-default-device", "--std=c++17"};
  const std::string text = std::string(kPrelude) + source_;
  void* program = nullptr;
  if (lib.nvrtcCreateProgram(&program, text.c_str(), (who_ + ".cu").c_str(), 0, nullptr, nullptr) != 0) return result;
  int error = lib.nvrtcCompileProgram(program, 4, options);
  if (error != 0) {
    size_t size = 0;
    lib.nvrtcGetProgramLogSize(program, &size);
    std::string log(size, '\0');
    lib.nvrtcGetProgramLog(program, log.data());
    TORCH_WARN(who_, " runs without its own kernels, they do not compile here (", arch, "): ", log.c_str());
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
  result.functions.resize(names_.size());
  for (size_t i = 0; i < names_.size() && error == 0; ++i) {
    error = lib.cuModuleGetFunction(&result.functions[i], module, names_[i]);
  }
  result.ready = error == 0;
  if (!result.ready) TORCH_WARN(who_, " runs without its own kernels: CUDA error ", error, " while loading them");
  return result;
}

const KernelSource::Module& KernelSource::ModuleFor(const at::Device& device, at::ScalarType type) {
  const std::pair<int, int> key(device.index(), KindOf(type));
  const std::lock_guard lock(mutex_);
  auto found = modules_.find(key);
  if (found == modules_.end()) {
    c10::cuda::CUDAGuard guard(device);
    MakeCurrent(device);
    found = modules_.emplace(key, Compile(key.second, key.first)).first;
  }
  return found->second;
}

bool KernelSource::Usable(const at::Device& device, at::ScalarType type) {
  return device.is_cuda() && KindOf(type) >= 0 && ModuleFor(device, type).ready;
}

void KernelSource::Launch(const at::Tensor& like, int kernel, const Grid& grid, std::vector<void*> arguments) {
  c10::cuda::CUDAGuard guard(like.device());
  MakeCurrent(like.device());
  void* stream = at::cuda::getCurrentCUDAStream().stream();
  const Libraries& lib = Libraries::Get();
  void* function = ModuleFor(like.device(), like.scalar_type()).functions[static_cast<size_t>(kernel)];
  constexpr unsigned kGranted = 48 << 10;   // of shared memory: more must be asked for
  constexpr int kMaxDynamicSharedSize = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
  int error = 0;
  if (grid.shared > kGranted) {
    error = lib.cuFuncSetAttribute(function, kMaxDynamicSharedSize, static_cast<int>(grid.shared));
  }
  if (error == 0) {
    error = lib.cuLaunchKernel(function, grid.blocks, grid.rows, 1, grid.threads, grid.thread_rows, 1, grid.shared,
                               stream, arguments.data(), nullptr);
  }
  TORCH_CHECK(error == 0, who_, "'s kernel ", names_[static_cast<size_t>(kernel)], " was not started: CUDA error ",
              error);
}

#endif

}  // namespace lockstep::cuda
