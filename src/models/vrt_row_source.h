// The CUDA source of vrt_kernels.cc that works on rows: norms, GEGLU, residuals, sums of columns. A warp has a row of a
// norm; threads move four or eight neighbouring elements at a time. Sums have a fixed order.
#pragma once

namespace lockstep::models::vrt::kernels {

inline constexpr char kRowSource[] = R"cuda(
__device__ __forceinline__ float WarpSum(float x) {
  for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

__device__ __forceinline__ float4 Wide(uint2 x) {
  return make_float4(Up(x.x & 0xffff), Up(x.x >> 16), Up(x.y & 0xffff), Up(x.y >> 16));
}
__device__ __forceinline__ uint2 Narrow(float4 x) { return make_uint2(Down(x.x, x.y), Down(x.z, x.w)); }

// QUADS of a lane: rows of 128 * QUADS elements at most, zeros behind.
template <int QUADS>
__device__ __forceinline__ void LoadRow(float4 (&v)[QUADS], const Elem* row, int quads) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    v[i] = Wide(lane + 32 * i < quads ? ((const uint2*)row)[lane + 32 * i] : make_uint2(0, 0));
  }
}

// The normal distribution up to x, to 1e-7 (Abramowitz and Stegun 7.1.26), and e^(-x x / 2).
__device__ __forceinline__ float Normal(float x, float& bell) {
  float z = fabsf(x) * 0.7071067811865476f, t = __fdividef(1.f, fmaf(0.3275911f, z, 1.f));
  float p = fmaf(fmaf(fmaf(fmaf(1.061405429f, t, -1.453152027f), t, 1.421413741f), t, -0.284496736f), t, 0.254829592f);
  bell = __expf(-z * z);
  float tail = 0.5f * p * t * bell;
  return x < 0.f ? tail : 1.f - tail;
}
__device__ __forceinline__ float Gelu(float x) {
  float bell;
  return x * Normal(x, bell);
}

template <int QUADS>
__device__ __forceinline__ void NormRow(const float4 (&v)[QUADS], const float4 (&w)[QUADS], const float4 (&b)[QUADS],
                                        Elem* to, float2* stats, int width, float epsilon) {
  int quads = width / 4, lane = threadIdx.x & 31;
  float sum = 0.f, square = 0.f;
#pragma unroll
  for (int i = 0; i < QUADS; ++i) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  float mean = WarpSum(sum) / width;
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    if (lane + 32 * i >= quads) continue;
    float p = v[i].x - mean, q = v[i].y - mean, r = v[i].z - mean, t = v[i].w - mean;
    square += (p * p + q * q) + (r * r + t * t);
  }
  float inverse = rsqrtf(WarpSum(square) / width + epsilon);
  if (lane == 0) *stats = make_float2(mean, inverse);
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    int at = lane + 32 * i;
    if (at >= quads) continue;
    ((uint2*)to)[at] = Narrow(make_float4((v[i].x - mean) * inverse * w[i].x + b[i].x,
                                          (v[i].y - mean) * inverse * w[i].y + b[i].y,
                                          (v[i].z - mean) * inverse * w[i].z + b[i].z,
                                          (v[i].w - mean) * inverse * w[i].w + b[i].w));
  }
}

template <int QUADS>
__device__ __forceinline__ void LoadVector(float4 (&v)[QUADS], const float* from, int quads) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    v[i] = lane + 32 * i < quads ? ((const float4*)from)[lane + 32 * i] : make_float4(0.f, 0.f, 0.f, 0.f);
  }
}

template <int QUADS>
__device__ __forceinline__ void NormForward(const Elem* x, const float* weight, const float* bias, Elem* to,
                                            float2* stats, i64 rows, int width, float epsilon) {
  int quads = width / 4;
  float4 w[QUADS], b[QUADS];
  LoadVector<QUADS>(w, weight, quads);
  LoadVector<QUADS>(b, bias, quads);
  i64 warps = (i64)gridDim.x * 8;
  for (i64 row = blockIdx.x * 8 + (threadIdx.x >> 5); row < rows; row += 2 * warps) {
    i64 next = row + warps;  // two rows on their way at a time
    float4 one[QUADS], two[QUADS];
    LoadRow<QUADS>(one, x + row * width, quads);
    if (next < rows) LoadRow<QUADS>(two, x + next * width, quads);
    NormRow<QUADS>(one, w, b, to + row * width, stats + row, width, epsilon);
    if (next < rows) NormRow<QUADS>(two, w, b, to + next * width, stats + next, width, epsilon);
  }
}

#define FOR4(CODE) { CODE(x) } { CODE(y) } { CODE(z) } { CODE(w) }

// dx = along + the norm's gradient; `normed` what it gave in forward. partial: [blocks, 3, width], of the weight, the
// bias, and of factor[clip] * along.
template <int QUADS>
__device__ __forceinline__ void NormBackward(const Elem* dy, const Elem* x, const float2* stats, const float* weight,
                                             const float* bias, const Elem* along, const float* factor,
                                             int rows_of_clip, Elem* dx, Elem* normed, float* partial, i64 rows,
                                             int width) {
  __shared__ float parts[8][3][128 * QUADS];
  int quads = width / 4, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float4 dw[QUADS] = {}, db[QUADS] = {}, da[QUADS] = {}, w[QUADS], b[QUADS];
  LoadVector<QUADS>(w, weight, quads);
  LoadVector<QUADS>(b, bias, quads);
  i64 warps = (i64)gridDim.x * 8;
  for (i64 row = blockIdx.x * 8 + warp; row < rows; row += 2 * warps) {
    float4 v[2][QUADS], d[2][QUADS], g[2][QUADS] = {};
    float2 s[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {  // two rows on their way at a time
      i64 at = min(row + r * warps, rows - 1);
      LoadRow<QUADS>(v[r], x + at * width, quads);
      LoadRow<QUADS>(d[r], dy + at * width, quads);
      if (along) LoadRow<QUADS>(g[r], along + at * width, quads);
      s[r] = stats[at];
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      i64 own = row + r * warps;
      if (own >= rows) continue;
      float one = 0.f, two = 0.f, f = factor ? factor[(u32)own / (u32)rows_of_clip] : 1.f;
#pragma unroll
      for (int i = 0; i < QUADS; ++i) {
        int at = lane + 32 * i;
        if (at >= quads) continue;
#define ROW(C)                                             \
  v[r][i].C = (v[r][i].C - s[r].x) * s[r].y;               \
  dw[i].C += d[r][i].C * v[r][i].C, db[i].C += d[r][i].C;  \
  d[r][i].C *= w[i].C;                                     \
  one += d[r][i].C, two += d[r][i].C * v[r][i].C;          \
  da[i].C += f * g[r][i].C;
        FOR4(ROW)
        if (normed) {
          ((uint2*)(normed + own * width))[at] =
              Narrow(make_float4(v[r][i].x * w[i].x + b[i].x, v[r][i].y * w[i].y + b[i].y, v[r][i].z * w[i].z + b[i].z,
                                 v[r][i].w * w[i].w + b[i].w));
        }
      }
      one = WarpSum(one) / width, two = WarpSum(two) / width;
#pragma unroll
      for (int i = 0; i < QUADS; ++i) {
        int at = lane + 32 * i;
        if (at >= quads) continue;
#define GRADIENT(C) g[r][i].C += (d[r][i].C - one - v[r][i].C * two) * s[r].y;
        FOR4(GRADIENT)
        ((uint2*)(dx + own * width))[at] = Narrow(g[r][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < QUADS; ++i) {
    ((float4*)parts[warp][0])[lane + 32 * i] = dw[i];
    ((float4*)parts[warp][1])[lane + 32 * i] = db[i];
    ((float4*)parts[warp][2])[lane + 32 * i] = da[i];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 3 * width; i += 256) {
    float sum = 0.f;
    for (int k = 0; k < 8; ++k) sum += parts[k][i / width][i % width];
    partial[(i64)blockIdx.x * 3 * width + i] = sum;
  }
}

extern "C" {
#define NORMS(NAME, QUADS)                                                                                             \
  __global__ void __launch_bounds__(256) layer_norm##NAME(const Elem* x, const float* weight, const float* bias,       \
                                                          Elem* to, float2* stats, i64 rows, int width,                \
                                                          float epsilon) {                                             \
    NormForward<QUADS>(x, weight, bias, to, stats, rows, width, epsilon);                                              \
  }                                                                                                                    \
  __global__ void __launch_bounds__(256) layer_norm_backward##NAME(                                                    \
      const Elem* dy, const Elem* x, const float2* stats, const float* weight, const float* bias, const Elem* along,   \
      const float* factor, int rows_of_clip, Elem* dx, Elem* normed, float* partial, i64 rows, int width) {            \
    NormBackward<QUADS>(dy, x, stats, weight, bias, along, factor, rows_of_clip, dx, normed, partial, rows, width);    \
  }
NORMS(_128, 1)
NORMS(_256, 2)
NORMS(_512, 4)

// x [rows, 2 * width] (gate, value) -> [rows, width]; eight elements a thread at a time.
__global__ void __launch_bounds__(256) geglu(const Elem* x, Elem* to, i64 rows, int width) {
  u32 eighths = width / 8;
  i64 count = rows * eighths;
#pragma unroll 2
  for (i64 i = blockIdx.x * (i64)256 + threadIdx.x; i < count; i += (i64)gridDim.x * 256) {
    i64 row = i / eighths;
    int c = (int)(i - row * eighths) * 8;
    F8 g = Load(x + row * 2 * width + c), u = Load(x + row * 2 * width + width + c);
#pragma unroll
    for (int k = 0; k < 8; ++k) g.v[k] = Gelu(g.v[k]) * u.v[k];
    Store(to + i * 8, g);
  }
}

// x becomes its gradient, d (of the output) becomes the output; sums of that gradient: [blocks, 2 * width]. A thread
// has eight columns of each half, and one of some rows at a time.
__global__ void __launch_bounds__(256) geglu_backward(Elem* x, Elem* d, float* sums, i64 rows, int width) {
  __shared__ float4 parts[4][256];
  int eighths = width / 8, lanes = blockDim.x / eighths, own = threadIdx.x / eighths, c = threadIdx.x % eighths * 8;
  F8 gates = Zero(), values = Zero();
  i64 step = (i64)gridDim.x * lanes, row = (i64)blockIdx.x * lanes + own;
  uint4 next[3];
#define FETCH(ROW)                                    \
  next[0] = *(const uint4*)(x + (ROW) * 2 * width + c),         \
  next[1] = *(const uint4*)(x + (ROW) * 2 * width + width + c), \
  next[2] = *(const uint4*)(d + (ROW) * width + c)
  if (row < rows) FETCH(row);
  for (; row < rows; row += step) {
    F8 g = Load((const Elem*)&next[0]), u = Load((const Elem*)&next[1]), dy = Load((const Elem*)&next[2]);
    if (row + step < rows) FETCH(row + step);  // before this row is stored: the compiler cannot know that they differ
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      float bell, half = Normal(g.v[k], bell), gelu = g.v[k] * half;
      float slope = half + g.v[k] * 0.3989422804014327f * bell, given = gelu * u.v[k];
      g.v[k] = dy.v[k] * u.v[k] * slope;
      u.v[k] = dy.v[k] * gelu;
      dy.v[k] = given;
      gates.v[k] += g.v[k], values.v[k] += u.v[k];
    }
    Store(x + row * 2 * width + c, g);
    Store(x + row * 2 * width + width + c, u);
    Store(d + row * width + c, dy);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* v = (i < 2 ? gates.v : values.v) + 4 * (i & 1);
    parts[i][threadIdx.x] = make_float4(v[0], v[1], v[2], v[3]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 4 * eighths; i += blockDim.x) {  // quarters of a thread's columns
    int part = i / eighths, e = i - part * eighths;
    float4 sum = parts[part][e];
    for (int k = 1; k < lanes; ++k) {
      float4 v = parts[part][k * eighths + e];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    *(float4*)(sums + ((i64)blockIdx.x * 2 + (part >> 1)) * width + e * 8 + 4 * (part & 1)) = sum;
  }
}

// to = x + factor[clip] * y; x and factor may be null.
__global__ void __launch_bounds__(256) residual(const Elem* x, const Elem* y, const float* factor, Elem* to,
                                                i64 quads, i64 quads_of_clip) {
#pragma unroll 4
  for (i64 i = blockIdx.x * (i64)256 + threadIdx.x; i < quads; i += (i64)gridDim.x * 256) {
    float4 a = Wide(x ? ((const uint2*)x)[i] : make_uint2(0, 0)), b = Wide(((const uint2*)y)[i]);
    float f = factor ? factor[i / quads_of_clip] : 1.f;
    ((uint2*)to)[i] = Narrow(make_float4(a.x + f * b.x, a.y + f * b.y, a.z + f * b.z, a.w + f * b.w));
  }
}

// Sums of the first columns: [blocks, columns]. A thread has four of them, and one of some rows at a time.
__global__ void __launch_bounds__(512) column_sums(const Elem* x, float* to, i64 rows, int columns, int stride) {
  __shared__ float4 parts[512];
  int quads = columns / 4, lanes = blockDim.x / quads, own = threadIdx.x / quads, c = threadIdx.x % quads;
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
  for (i64 row = (i64)blockIdx.x * lanes + own; row < rows; row += (i64)gridDim.x * lanes) {
    float4 v = Wide(((const uint2*)(x + row * stride))[c]);
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (own > 0) return;
  for (int i = 1; i < lanes; ++i) {
    float4 v = parts[i * quads + c];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  ((float4*)(to + (i64)blockIdx.x * columns))[c] = sum;
}

// Columns of rows to columns of others, zeros where x is null.
__global__ void __launch_bounds__(256) move_columns(const Elem* __restrict__ x, int stride, int first,
                                                    Elem* __restrict__ to, int to_stride, int to_first, i64 rows,
                                                    int columns) {
  u32 eighths = columns / 8;
  i64 count = rows * eighths;
#pragma unroll 4
  for (i64 i = blockIdx.x * (i64)256 + threadIdx.x; i < count; i += (i64)gridDim.x * 256) {
    i64 row = i / eighths;
    int c = (int)(i - row * eighths) * 8;
    *(uint4*)(to + row * to_stride + to_first + c) =
        x ? *(const uint4*)(x + row * stride + first + c) : make_uint4(0, 0, 0, 0);
  }
}

// [parts, count] -> [count].
__global__ void __launch_bounds__(512) sum_parts(const float* x, float* to, int parts, int count) {
  __shared__ float sums[16][32];
  int own = threadIdx.x >> 5, lane = threadIdx.x & 31, c = blockIdx.x * 32 + lane;
  float sum = 0.f;
  if (c < count) {
#pragma unroll 4
    for (int p = own; p < parts; p += 16) sum += x[(i64)p * count + c];
  }
  sums[own][lane] = sum;
  __syncthreads();
  if (own > 0 || c >= count) return;
#pragma unroll
  for (int i = 1; i < 16; ++i) sum += sums[i][lane];
  to[c] = sum;
}
}
)cuda";

}  // namespace lockstep::models::vrt::kernels
