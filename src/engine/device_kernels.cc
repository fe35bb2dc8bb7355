#include "engine/device_kernels.h"

#include <torch/types.h>

#include <algorithm>
#include <iterator>

#include "cuda/kernel_source.h"

namespace lockstep::engine::device {
namespace {

constexpr char kSource[] = R"cuda(
typedef unsigned long long u64;

extern "C" __global__ void block_squares(const Elem* g, double* sums, u64* largest, i64 blocks) {
  u64 top = 0;
  for (i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += (i64)gridDim.x * blockDim.x) {
    F8 low = Load(g + b * 16), high = Load(g + b * 16 + 8);
    double lane[8];
    for (int i = 0; i < 8; ++i) {
      double x = low.v[i], y = high.v[i];
      lane[i] = __dadd_rn(x * x, y * y);  // both products are exact
    }
    double sum = __dadd_rn(
        __dadd_rn(__dadd_rn(lane[0], lane[4]), __dadd_rn(lane[2], lane[6])),
        __dadd_rn(__dadd_rn(lane[1], lane[5]), __dadd_rn(lane[3], lane[7])));
    sums[b] = sum;
    u64 bits = (u64)__double_as_longlong(sum);  // sums are not negative: their bits are ordered, NaN above all
    top = bits > top ? bits : top;
  }
  for (int step = 16; step > 0; step >>= 1) {
    u64 other = __shfl_xor_sync(0xffffffffu, top, step);
    top = other > top ? other : top;
  }
  if ((threadIdx.x & 31) == 0) atomicMax(largest, top);
}

extern "C" __global__ void add_blocks(const double* sums, const double* largest, i64* out, i64 blocks) {
  double top = *largest;
  if (!(top > 0.0) || !(top < 1.0 / 0.0)) return;
  int exponent;
  frexp(top, &exponent);
  double units = ldexp(1.0, 30 - exponent > 1000 ? 1000 : 30 - exponent);
  i64 high = 0, low = 0;
  for (i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += (i64)gridDim.x * blockDim.x) {
    double x = sums[b] * units, whole = floor(x);
    high += (i64)whole;
    low += (i64)floor((x - whole) * 1073741824.0);
  }
  for (int step = 16; step > 0; step >>= 1) {
    high += __shfl_xor_sync(0xffffffffu, high, step);
    low += __shfl_xor_sync(0xffffffffu, low, step);
  }
  if ((threadIdx.x & 31) == 0) {
    atomicAdd((u64*)out, (u64)high);
    atomicAdd((u64*)out + 1, (u64)low);
  }
}

struct Rates { double lr, lr_scale, beta1, beta2, epsilon, weight_decay; int decoupled; };
struct Step { float rate, decay, l2, beta1, beta2, epsilon, correction2, gradient; };

// The operations of the host's loop, none contracted.
__device__ __forceinline__ void Update(float& p, float g, float& m, float& v, const Step& s) {
  float gradient = __fadd_rn(__fmul_rn(g, s.gradient), __fmul_rn(s.l2, p));
  m = __fadd_rn(m, __fmul_rn(__fsub_rn(1.f, s.beta1), __fsub_rn(gradient, m)));
  v = __fadd_rn(__fmul_rn(v, s.beta2), __fmul_rn(__fmul_rn(__fsub_rn(1.f, s.beta2), gradient), gradient));
  float under = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), s.correction2), s.epsilon);
  p = __fsub_rn(__fmul_rn(p, s.decay), __fdiv_rn(__fmul_rn(s.rate, m), under));
}

extern "C" __global__ void adam(float* p, const Elem* g, float* m, float* v, i64 n, Rates r, const double* lr_factor,
                                const double* factor, const float* step, const float* found_inf, int whole) {
  __shared__ Step s;
  if (*found_inf != 0.f) return;
  if (threadIdx.x == 0) {
    double lr = __dmul_rn(__dmul_rn(r.lr, *lr_factor), r.lr_scale), t = *step;
    float correction1 = (float)(1 - pow(r.beta1, t));
    s.rate = __fdiv_rn((float)lr, correction1);
    s.decay = r.decoupled ? (float)__dsub_rn(1.0, __dmul_rn(lr, r.weight_decay)) : 1.f;
    s.l2 = r.decoupled ? 0.f : (float)r.weight_decay;
    s.beta1 = (float)r.beta1, s.beta2 = (float)r.beta2, s.epsilon = (float)r.epsilon;
    s.correction2 = (float)sqrt(1 - pow(r.beta2, t));
    s.gradient = (float)*factor;
  }
  __syncthreads();
  i64 eights = whole ? n / 8 : 0, first = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
  for (i64 i = first; i < eights; i += all) {
    F8 P = Load(p + i * 8), G = Load(g + i * 8), M = Load(m + i * 8), V = Load(v + i * 8);
    for (int k = 0; k < 8; ++k) Update(P.v[k], G.v[k], M.v[k], V.v[k], s);
    Store(p + i * 8, P);
    Store(m + i * 8, M);
    Store(v + i * 8, V);
  }
  for (i64 i = eights * 8 + first; i < n; i += all) {
    float P = p[i], M = m[i], V = v[i];
    Update(P, One(g + i), M, V, s);
    p[i] = P, m[i] = M, v[i] = V;
  }
}
)cuda";

enum Kernel { kBlockSquares, kAddBlocks, kAdam, kKernels };
constexpr const char* kNames[] = {"block_squares", "add_blocks", "adam"};
static_assert(std::size(kNames) == kKernels);
constexpr unsigned kBlocks = 132 * 8, kThreads = 256;

cuda::KernelSource& Source() {
  static cuda::KernelSource source("the optimizer", kSource, {std::begin(kNames), std::end(kNames)});
  return source;
}

unsigned BlocksFor(int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kBlocks));
}

bool Aligned(const at::Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0; }

}  // namespace

bool Usable(const at::Device& device) {
  return device.is_cuda() && Source().Usable(device, at::kFloat) && Source().Usable(device, at::kBFloat16);
}

void BlockSquares(const at::Tensor& gradients, const at::Tensor& sums, const at::Tensor& largest) {
  void *g = cuda::Address(gradients), *to = cuda::Address(sums), *top = cuda::Address(largest);
  int64_t blocks = gradients.numel() / 16;
  Source().Launch(gradients, kBlockSquares, {BlocksFor(blocks), 1, kThreads}, {&g, &to, &top, &blocks});
}

void AddBlocks(const at::Tensor& sums, const at::Tensor& largest, const at::Tensor& out) {
  void *from = cuda::Address(sums), *top = cuda::Address(largest), *to = cuda::Address(out);
  int64_t blocks = sums.numel();
  // Only the type of a tensor chooses the kernels; these know doubles and integers alone.
  const at::Tensor like = at::empty({0}, sums.options().dtype(at::kFloat));
  Source().Launch(like, kAddBlocks, {BlocksFor(blocks), 1, kThreads}, {&from, &top, &to, &blocks});
}

void Adam(const at::Tensor& p, const at::Tensor& g, const at::Tensor& m, const at::Tensor& v, const AdamRates& rates,
          const AdamNumbers& numbers) {
  AdamRates r = rates;
  void *values = cuda::Address(p), *gradients = cuda::Address(g), *first = cuda::Address(m), *second = cuda::Address(v),
       *lr = cuda::Address(numbers.lr_factor), *factor = cuda::Address(numbers.factor),
       *step = cuda::Address(numbers.step), *inf = cuda::Address(numbers.found_inf);
  int64_t n = p.numel();
  int whole = Aligned(p) && Aligned(g) && Aligned(m) && Aligned(v) ? 1 : 0;
  Source().Launch(g, kAdam, {BlocksFor(n / 8), 1, kThreads},
                  {&values, &gradients, &first, &second, &n, &r, &lr, &factor, &step, &inf, &whole});
}

}  // namespace lockstep::engine::device
