// The CUDA source of fused_kernels.cc, for NVRTC (cuda/kernel_source.h says what stands before it). One
// thread moves eight channels of a pixel at a time, 16 bytes (32 for float), and keeps to the same eight, so that sums
// per channel stay in registers.
#pragma once

namespace lockstep::models::fused::kernels {

inline constexpr char kSource[] = R"cuda(
struct Size { int T, H, W, C; u32 rows; };  // rows: pixels of all frames

// Where channel 0 of a pixel is; row = (frame * H + y) * W + x.
__device__ __forceinline__ i64 Grouped(u32 row, int s, const Size& z) {
  if (s == 1) return (i64)row * z.C;
  u32 area = z.H * z.W, f = row / area, p = row - f * area, g = f / s;
  return ((i64)g * area + p) * (s * z.C) + (f - g * s) * z.C;
}
__device__ __forceinline__ i64 Phases(u32 row, int s, const Size& z) {
  u32 area = z.H * z.W, f = row / area, p = row - f * area, y = p / z.W, x = p - y * z.W, g = f / s, k = f - g * s;
  u32 a = y & 1, b = x & 1;
  return (((i64)g * (z.H / 2 + 1) + (y >> 1) + a) * (z.W / 2 + 1) + (x >> 1) + b) * (4 * s * z.C) +
         (k * 4 + a * 2 + b) * z.C;
}

template <bool kPhases>
__device__ __forceinline__ void EpilogueBody(const Elem* z, int zs, const float* bias, const Elem* residual, int relu,
                                             const Elem* first, Elem* cat, Elem* out, int so, Size n) {
  int lanes = n.C / 8, step = blockDim.x / lanes, c = (threadIdx.x % lanes) * 8;
  u32 area = n.H * n.W;
  F8 add = bias ? Load(bias + c) : Zero();
  for (u32 row = blockIdx.x * step + threadIdx.x / lanes; row < n.rows; row += gridDim.x * step) {
    F8 v = Load(z + (kPhases ? Phases(row, zs, n) : Grouped(row, zs, n)) + c);
    if (residual) {
      F8 r = Load(residual + (i64)row * 2 * n.C + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) v.v[i] += r.v[i];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.v[i] += add.v[i];
      if (relu) v.v[i] = fmaxf(v.v[i], 0.f);
    }
    if (out) Store(out + Grouped(row, so, n) + c, v);
    if (cat) {
      u32 f = row / area, clip = f / n.T, t = f - clip * n.T;
      Elem* at = cat + (i64)row * 2 * n.C + c;
      Store(at, v);
      if (t + 1 < n.T) Store(at + (i64)area * 2 * n.C + n.C, v);
      if (t == 0) Store(at + n.C, first ? Load(first + ((i64)clip * area + (row - f * area)) * n.C + c) : Zero());
    }
  }
}
extern "C" __global__ void epilogue(const Elem* z, int zs, const float* bias, const Elem* residual, int relu,
                                    const Elem* first, Elem* cat, Elem* out, int so, Size n) {
  EpilogueBody<false>(z, zs, bias, residual, relu, first, cat, out, so, n);
}
extern "C" __global__ void epilogue_phases(const Elem* z, int zs, const float* bias, const Elem* residual, int relu,
                                           const Elem* first, Elem* cat, Elem* out, int so, Size n) {
  EpilogueBody<true>(z, zs, bias, residual, relu, first, cat, out, so, n);
}

// Rows of sums that no block writes would be read: the grid has exactly as many blocks as there are rows.
__device__ __forceinline__ void WriteSums(const float* sum, float* sums, int C, int step) {
  __shared__ float all[256 * 8];
#pragma unroll
  for (int i = 0; i < 8; ++i) all[threadIdx.x * 8 + i] = sum[i];
  __syncthreads();
  for (int j = threadIdx.x; j < C; j += blockDim.x) {
    float total = 0;
    for (int r = 0; r < step; ++r) total += all[r * C + j];
    sums[(i64)blockIdx.x * C + j] = total;
  }
}

// The commonest case, all plain and dense: out = [y > 0] * g, and sums.
extern "C" __global__ void __launch_bounds__(256, 6)
    mask_sums(const Elem* g, const Elem* y, Elem* out, float* sums, Size n) {
  int lanes = n.C / 8, step = blockDim.x / lanes, c = (threadIdx.x % lanes) * 8;
  float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  u32 stride = gridDim.x * step, row = blockIdx.x * step + threadIdx.x / lanes;
  for (; row < n.rows; row += 2 * stride) {
    i64 at = (i64)row * n.C + c;
    bool two = row + stride < n.rows;
    i64 next = two ? at + (i64)stride * n.C : at;
    F8 v = Load(g + at), m = Load(y + at), v2 = Load(g + next), m2 = Load(y + next);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v.v[i] = m.v[i] > 0 ? v.v[i] : 0.f;
      v2.v[i] = m2.v[i] > 0 && two ? v2.v[i] : 0.f;
      sum[i] += v.v[i] + v2.v[i];
    }
    Store(out + at, v);
    if (two) Store(out + next, v2);
  }
  WriteSums(sum, sums, n.C, step);
}

template <bool kPhases>
__device__ __forceinline__ void CollectBody(const Elem* direct, int sd, const Elem* both, const Elem* active, int sa,
                                            int past, Elem* out, int so, float* sums, Size n) {
  int lanes = n.C / 8, step = blockDim.x / lanes, c = (threadIdx.x % lanes) * 8;
  float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  u32 area = n.H * n.W, hs = n.H / 2 + 1, ws = n.W / 2 + 1;
  u32 count = kPhases ? n.rows / area * hs * ws * 4 : n.rows;
  for (u32 q = blockIdx.x * step + threadIdx.x / lanes; q < count; q += gridDim.x * step) {
    u32 row = q;
    bool inside = true;
    i64 to;
    if (kPhases) {  // q = ((group * hs + i) * ws + j) * 4 s + 4 k + phase
      u32 m = q / (4 * so), rest = q - m * (4 * so), k = rest >> 2, a = (rest >> 1) & 1, b = rest & 1;
      u32 line = m / ws, j = m - line * ws, group = line / hs, i = line - group * hs;
      int y = 2 * ((int)i - (int)a) + (int)a, x = 2 * ((int)j - (int)b) + (int)b;
      inside = y >= 0 && y < n.H && x >= 0 && x < n.W;
      row = (group * so + k) * area + (inside ? y * n.W + x : 0);
      to = (i64)q * n.C;
    } else {
      to = Grouped(row, so, n);
    }
    F8 v = Zero();
    if (inside) {
      if (direct) v = Load(direct + Grouped(row, sd, n) + c);
      if (both) {
        const Elem* at = both + (i64)row * 2 * n.C + c;
        F8 own = Load(at), next = Zero();
        if (row / area % n.T + 1 < n.T) next = Load(at + (i64)area * 2 * n.C + n.C);
#pragma unroll
        for (int i = 0; i < 8; ++i) v.v[i] += own.v[i] + next.v[i];
      }
      if (active) {
        F8 m = Load(active + (past ? (i64)row * 2 * n.C : Grouped(row, sa, n)) + c);
#pragma unroll
        for (int i = 0; i < 8; ++i) v.v[i] = m.v[i] > 0 ? v.v[i] : 0.f;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[i] += v.v[i];
    }
    Store(out + to + c, v);
  }
  if (sums) WriteSums(sum, sums, n.C, step);
}
extern "C" __global__ void __launch_bounds__(256, 4)
    collect(const Elem* direct, int sd, const Elem* both, const Elem* active, int sa, int past, Elem* out, int so,
            float* sums, Size n) {
  CollectBody<false>(direct, sd, both, active, sa, past, out, so, sums, n);
}
extern "C" __global__ void __launch_bounds__(256, 4)
    collect_phases(const Elem* direct, int sd, const Elem* both, const Elem* active, int sa, int past, Elem* out,
                   int so, float* sums, Size n) {
  CollectBody<true>(direct, sd, both, active, sa, past, out, so, sums, n);
}

// Sums over the blocks that wrote them, (sets, blocks, C) -> (sets, C), always in the same order.
extern "C" __global__ void __launch_bounds__(1024) total(const float* sums, float* out, int blocks, int C) {
  __shared__ float part[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, lane = threadIdx.y;
  const float* from = sums + (i64)blockIdx.y * blocks * C;
  float sum = 0;
  if (c < C) {
#pragma unroll 4
    for (int b = lane; b < blocks; b += 32) sum += from[(i64)b * C + c];
  }
  part[lane][threadIdx.x] = sum;
  __syncthreads();
  if (lane > 0 || c >= C) return;
  for (int i = 1; i < 32; ++i) sum += part[i][threadIdx.x];
  out[(i64)blockIdx.y * C + c] = sum;
}

// (out, in, taps) in memory <-> (out, taps, in); one row of blocks per tensor.
struct Item { void* wide; void* narrow; int in, taps, count, unused; };
struct Items { Item item[32]; };
extern "C" __global__ void pack(Items all) {
  const Item& m = all.item[blockIdx.y];
  for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < m.count; j += gridDim.x * blockDim.x) {
    int o = j / (m.in * m.taps), rest = j - o * m.in * m.taps, k = rest / m.in, i = rest - k * m.in;
    SetOne((Elem*)m.narrow + j, ((const float*)m.wide)[(o * m.in + i) * m.taps + k]);
  }
}
extern "C" __global__ void unpack(Items all) {
  const Item& m = all.item[blockIdx.y];
  for (int j = blockIdx.x * blockDim.x + threadIdx.x; j < m.count; j += gridDim.x * blockDim.x) {
    int o = j / (m.in * m.taps), rest = j - o * m.in * m.taps, i = rest / m.taps, k = rest - i * m.taps;
    ((float*)m.wide)[j] = One((const Elem*)m.narrow + (o * m.taps + k) * m.in + i);
  }
}
)cuda";

}  // namespace lockstep::models::fused::kernels
