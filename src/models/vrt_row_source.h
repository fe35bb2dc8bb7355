// The CUDA source of vrt_kernels.cc that works on rows: norms, GEGLU, residuals, sums of columns. A warp has a row and
// moves two neighbouring elements at a time; widths are even. Sums have a fixed order.
#pragma once

namespace lockstep::models::vrt::kernels {

inline constexpr char kRowSource[] = R"cuda(
// PAIRS of a lane: rows of 64 * PAIRS elements at most.

__device__ __forceinline__ float WarpSum(float x) {
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

template <int PAIRS>
__device__ __forceinline__ void LoadPairs(float2 (&v)[PAIRS], const Elem* row, int pairs) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < PAIRS; ++i) {
    u32 x = lane + 32 * i < pairs ? ((const u32*)row)[lane + 32 * i] : 0;
    v[i] = make_float2(Up(x & 0xffff), Up(x >> 16));
  }
}

__device__ __forceinline__ float Gelu(float x) { return 0.5f * x * (1.f + erff(x * 0.7071067811865476f)); }
__device__ __forceinline__ float GeluSlope(float x) {
  return 0.5f * (1.f + erff(x * 0.7071067811865476f)) + x * 0.3989422804014327f * __expf(-0.5f * x * x);
}

template <int PAIRS>
__device__ __forceinline__ void NormForward(const Elem* x, const float* weight, const float* bias, Elem* to,
                                            float2* stats, i64 rows, int width, float epsilon) {
  int pairs = width / 2, lane = threadIdx.x & 31;
  i64 warps = (i64)gridDim.x * 8;
  for (i64 row = blockIdx.x * 8 + (threadIdx.x >> 5); row < rows; row += warps) {
    float2 v[PAIRS];
    LoadPairs(v, x + row * width, pairs);
    float sum = 0.f, square = 0.f;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) sum += v[i].x + v[i].y;
    float mean = WarpSum(sum) / width;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
      if (lane + 32 * i < pairs) {
        float a = v[i].x - mean, b = v[i].y - mean;
        square += a * a + b * b;
      }
    }
    float inverse = rsqrtf(WarpSum(square) / width + epsilon);
    if (stats && lane == 0) stats[row] = make_float2(mean, inverse);
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
      int p = lane + 32 * i;
      if (p >= pairs) continue;
      float2 w = ((const float2*)weight)[p], b = ((const float2*)bias)[p];
      ((u32*)(to + row * width))[p] =
          Down((v[i].x - mean) * inverse * w.x + b.x, (v[i].y - mean) * inverse * w.y + b.y);
    }
  }
}

// dx = along + the norm's gradient; `normed` what it gave in forward. partial: [blocks, 2, width].
template <int PAIRS>
__device__ __forceinline__ void NormBackward(const Elem* dy, const Elem* x, const float2* stats,
                                                     const float* weight, const float* bias, const Elem* along,
                                                     Elem* dx, Elem* normed, float* partial, i64 rows, int width) {
  __shared__ float parts[8][2][64 * PAIRS];
  int pairs = width / 2, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float2 dw[PAIRS] = {}, db[PAIRS] = {};
  for (i64 row = blockIdx.x * 8 + warp; row < rows; row += (i64)gridDim.x * 8) {
    float2 v[PAIRS], d[PAIRS], g[PAIRS];
    LoadPairs(v, x + row * width, pairs);
    LoadPairs(d, dy + row * width, pairs);
    if (along) LoadPairs(g, along + row * width, pairs);
    float2 s = stats[row];
    float one = 0.f, two = 0.f;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
      int p = lane + 32 * i;
      if (p >= pairs) continue;
      float2 w = ((const float2*)weight)[p], b = ((const float2*)bias)[p];
      v[i].x = (v[i].x - s.x) * s.y, v[i].y = (v[i].y - s.x) * s.y;
      dw[i].x += d[i].x * v[i].x, dw[i].y += d[i].y * v[i].y;
      db[i].x += d[i].x, db[i].y += d[i].y;
      if (normed) ((u32*)(normed + row * width))[p] = Down(v[i].x * w.x + b.x, v[i].y * w.y + b.y);
      d[i].x *= w.x, d[i].y *= w.y;
      one += d[i].x + d[i].y, two += d[i].x * v[i].x + d[i].y * v[i].y;
    }
    one = WarpSum(one) / width, two = WarpSum(two) / width;
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
      int p = lane + 32 * i;
      if (p >= pairs) continue;
      float a = (d[i].x - one - v[i].x * two) * s.y, b = (d[i].y - one - v[i].y * two) * s.y;
      if (along) a += g[i].x, b += g[i].y;
      ((u32*)(dx + row * width))[p] = Down(a, b);
    }
  }
#pragma unroll
  for (int i = 0; i < PAIRS; ++i) {
    int c = 2 * (lane + 32 * i);
    parts[warp][0][c] = dw[i].x, parts[warp][0][c + 1] = dw[i].y;
    parts[warp][1][c] = db[i].x, parts[warp][1][c + 1] = db[i].y;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * width; i += 256) {
    float sum = 0.f;
    for (int w = 0; w < 8; ++w) sum += parts[w][i / width][i % width];
    partial[(i64)blockIdx.x * 2 * width + i] = sum;
  }
}

extern "C" {
#define NORMS(NAME, PAIRS)                                                                                             \
  __global__ void __launch_bounds__(256) layer_norm##NAME(const Elem* x, const float* weight, const float* bias,       \
                                                          Elem* to, float2* stats, i64 rows, int width,                \
                                                          float epsilon) {                                             \
    NormForward<PAIRS>(x, weight, bias, to, stats, rows, width, epsilon);                                              \
  }                                                                                                                    \
  __global__ void __launch_bounds__(256) layer_norm_backward##NAME(                                                    \
      const Elem* dy, const Elem* x, const float2* stats, const float* weight, const float* bias, const Elem* along,   \
      Elem* dx, Elem* normed, float* partial, i64 rows, int width) {                                                   \
    NormBackward<PAIRS>(dy, x, stats, weight, bias, along, dx, normed, partial, rows, width);                          \
  }
NORMS(_128, 2)
NORMS(_256, 4)
NORMS(_512, 8)

// x [rows, 2 * width] (gate, value) -> [rows, width].
__global__ void __launch_bounds__(256) geglu(const Elem* x, Elem* to, i64 rows, int width) {
  int pairs = width / 2;
  i64 count = rows * pairs;
  for (i64 i = blockIdx.x * (i64)256 + threadIdx.x; i < count; i += (i64)gridDim.x * 256) {
    i64 row = i / pairs;
    int p = i - row * pairs;
    const u32* from = (const u32*)(x + row * 2 * width);
    u32 g = from[p], u = from[p + pairs];
    ((u32*)to)[i] = Down(Gelu(Up(g & 0xffff)) * Up(u & 0xffff), Gelu(Up(g >> 16)) * Up(u >> 16));
  }
}

// x becomes its gradient, d (of the output) becomes the output.
__global__ void __launch_bounds__(256) geglu_backward(Elem* x, Elem* d, i64 rows, int width) {
  int pairs = width / 2;
  i64 count = rows * pairs;
  for (i64 i = blockIdx.x * (i64)256 + threadIdx.x; i < count; i += (i64)gridDim.x * 256) {
    i64 row = i / pairs;
    int p = i - row * pairs;
    u32* at = (u32*)(x + row * 2 * width);
    u32 g = at[p], u = at[p + pairs], dy = ((u32*)d)[i];
    float g0 = Up(g & 0xffff), g1 = Up(g >> 16), u0 = Up(u & 0xffff), u1 = Up(u >> 16);
    float d0 = Up(dy & 0xffff), d1 = Up(dy >> 16), a0 = Gelu(g0), a1 = Gelu(g1);
    at[p] = Down(d0 * u0 * GeluSlope(g0), d1 * u1 * GeluSlope(g1));
    at[p + pairs] = Down(d0 * a0, d1 * a1);
    ((u32*)d)[i] = Down(a0 * u0, a1 * u1);
  }
}

// to = x + factor[clip] * y; x and factor may be null.
__global__ void __launch_bounds__(256) residual(const Elem* x, const Elem* y, const float* factor, Elem* to,
                                                i64 pairs, i64 pairs_of_clip) {
  for (i64 i = blockIdx.x * (i64)256 + threadIdx.x; i < pairs; i += (i64)gridDim.x * 256) {
    u32 a = x ? ((const u32*)x)[i] : 0, b = ((const u32*)y)[i];
    float f = factor ? factor[i / pairs_of_clip] : 1.f;
    ((u32*)to)[i] = Down(Up(a & 0xffff) + f * Up(b & 0xffff), Up(a >> 16) + f * Up(b >> 16));
  }
}

// Sums of the first columns: [blocks, columns]. A thread has two of them, and one of some rows at a time.
__global__ void __launch_bounds__(1024) column_sums(const Elem* x, float* to, i64 rows, int columns,
                                                    int stride) {
  __shared__ float2 parts[1024];
  int pairs = columns / 2, lanes = blockDim.x / pairs, own = threadIdx.x / pairs, c = threadIdx.x % pairs;
  float2 sum = make_float2(0.f, 0.f);
#pragma unroll 8
  for (i64 row = (i64)blockIdx.x * lanes + own; row < rows; row += (i64)gridDim.x * lanes) {
    u32 v = ((const u32*)(x + row * stride))[c];
    sum.x += Up(v & 0xffff), sum.y += Up(v >> 16);
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (own > 0) return;
  for (int i = 1; i < lanes; ++i) sum.x += parts[i * pairs + c].x, sum.y += parts[i * pairs + c].y;
  ((float2*)(to + (i64)blockIdx.x * columns))[c] = sum;
}
}
)cuda";

}  // namespace lockstep::models::vrt::kernels
