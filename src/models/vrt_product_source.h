// The CUDA source of vrt_products.cc, for NVRTC: matrix products of rows with what stands around them
// (cuda/kernel_source.h says what stands before it): the feed-forward half of a block that keeps nothing, and a linear
// layer that is added to its residual. Weights lie in shared memory for the life of a block of threads; a warp has some
// rows in registers and waits for no other. Columns are renumbered within groups of 32 so that a lane reads and writes
// eight neighbours: an order of sums, not another function.
#pragma once

namespace lockstep::models::vrt::products {

inline constexpr char kProductSource[] = R"cuda(
struct Mlp {
  const Elem* x;              // [rows, width]
  const float *norm, *norm_bias;
  const float *gate, *gate_bias, *value, *value_bias;  // [hidden, width]
  const float *down, *down_bias;                       // [width, hidden]
  const float* factor;        // of each clip, or null
  Elem* to;                   // x + factor * down(gelu(gate) * value)
  i64 rows, rows_of_clip;
  int width, hidden;
  float epsilon;
};

extern __shared__ __align__(16) unsigned char memory[];

// x times the normal distribution up to x, that to 3e-7 (Abramowitz and Stegun 7.1.28).
__device__ __forceinline__ float Gelu(float x) {
  float z = fabsf(x) * 0.7071067811865476f, p = fmaf(z, 0.0000430638f, 0.0002765672f);
  p = fmaf(fmaf(fmaf(fmaf(fmaf(p, z, 0.0001520143f), z, 0.0092705272f), z, 0.0422820123f), z, 0.0705230784f), z, 1.f);
  p *= p, p *= p, p *= p, p *= p;
  float tail = __fdividef(0.5f, p);
  return x * (x < 0.f ? tail : 1.f - tail);
}

// Where column c of 32 stands as an element of sums, and as a column of results.
__device__ __forceinline__ int AsElement(int c) { return (c & ~31) + (c & 4) * 4 + (c & 2) * 4 + (c >> 3 & 3) * 2 + (c & 1); }
__device__ __forceinline__ int AsColumn(int c) { return (c & ~31) + (c & 6) * 4 + (c >> 3 & 3) * 2 + (c & 1); }

// a.to = a.x + factor * (y + bias), 16 rows from `first` on. Of Mlp and of Linear.
template <int GROUPS, typename Layer>
__device__ __forceinline__ void AddTile(const Layer& a, const float (&y)[4 * GROUPS][4], const float* bias, i64 first) {
  int lane = threadIdx.x & 31, t = lane & 3;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    i64 row = first + e * 8 + (lane >> 2);
    if (row >= a.rows) continue;
    float factor = a.factor ? a.factor[row / a.rows_of_clip] : 1.f;
#pragma unroll
    for (int s = 0; s < GROUPS; ++s) {
      int c = 32 * s + 8 * t;
      if (c >= a.width) continue;
      F8 v = Load(a.x + row * a.width + c), b = Load(bias + c);
#pragma unroll
      for (int i = 0; i < 8; ++i) v.v[i] += factor * (y[4 * s + (i >> 1)][2 * e + (i & 1)] + b.v[i]);
      Store(a.to + row * a.width + c, v);
    }
  }
}

// GROUPS of 32 columns, zeros behind `width`; a warp has TILES of 16 rows.
template <int GROUPS, int TILES>
__device__ __forceinline__ void MlpForward(const Mlp& a) {
  constexpr int kWidth = 32 * GROUPS, kUp = kWidth + 8;
  int kDown = a.hidden + 8, chunks = a.hidden / 16, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  Elem *up = (Elem*)memory, *down = up + 2 * a.hidden * kUp;
  float *gate_bias = (float*)(down + kWidth * kDown), *value_bias = gate_bias + a.hidden;
  float *down_bias = value_bias + a.hidden, *norm = down_bias + kWidth, *norm_bias = norm + kWidth;
  // Sixteen rows of the gate, then sixteen of the value.
  for (int i = threadIdx.x; i < a.hidden * kWidth; i += blockDim.x) {
    int r = i / (kWidth / 2), c = i % (kWidth / 2) * 2, hidden = r / 32 * 16 + (r & 15);
    float2 v = make_float2(0.f, 0.f);
    if (c < a.width) v = *(const float2*)((r & 16 ? a.value : a.gate) + hidden * a.width + c);
    *(u32*)(up + r * kUp + AsElement(c)) = Down(v.x, v.y);
  }
  for (int i = threadIdx.x; i < kWidth * a.hidden / 2; i += blockDim.x) {
    int r = i / (a.hidden / 2), c = i % (a.hidden / 2) * 2;
    float2 v = make_float2(0.f, 0.f);
    if (r < a.width) v = *(const float2*)(a.down + r * a.hidden + c);
    *(u32*)(down + AsColumn(r) * kDown + c) = Down(v.x, v.y);
  }
  for (int i = threadIdx.x; i < a.hidden; i += blockDim.x) gate_bias[i] = a.gate_bias[i], value_bias[i] = a.value_bias[i];
  for (int i = threadIdx.x; i < kWidth; i += blockDim.x) {
    bool in = i < a.width;
    down_bias[i] = in ? a.down_bias[i] : 0.f, norm[i] = in ? a.norm[i] : 0.f, norm_bias[i] = in ? a.norm_bias[i] : 0.f;
  }
  __syncthreads();

  i64 step = (i64)gridDim.x * (blockDim.x >> 5) * 16 * TILES;
  for (i64 first = ((i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * 16 * TILES; first < a.rows; first += step) {
    u32 x[TILES][2 * GROUPS][4];
#pragma unroll
    for (int m = 0; m < TILES; ++m) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        i64 row = min(first + m * 16 + e * 8 + g, a.rows - 1);
        const Elem* from = a.x + row * a.width + 8 * t;
        F8 v[GROUPS];
        float sum = 0.f, square = 0.f;
#pragma unroll
        for (int s = 0; s < GROUPS; ++s) {
          v[s] = 32 * s + 8 * t < a.width ? Load(from + 32 * s) : Zero();
#pragma unroll
          for (int i = 0; i < 8; ++i) sum += v[s].v[i];
        }
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        float mean = sum / a.width;
#pragma unroll
        for (int s = 0; s < GROUPS; ++s) {
          if (32 * s + 8 * t >= a.width) continue;
#pragma unroll
          for (int i = 0; i < 8; ++i) v[s].v[i] -= mean, square += v[s].v[i] * v[s].v[i];
        }
        square += __shfl_xor_sync(0xffffffffu, square, 1);
        square += __shfl_xor_sync(0xffffffffu, square, 2);
        float inverse = rsqrtf(square / a.width + a.epsilon);
#pragma unroll
        for (int s = 0; s < GROUPS; ++s) {
          F8 w = Load(norm + 32 * s + 8 * t), b = Load(norm_bias + 32 * s + 8 * t);
#pragma unroll
          for (int i = 0; i < 8; ++i) w.v[i] = fmaf(v[s].v[i] * inverse, w.v[i], b.v[i]);
#pragma unroll
          for (int i = 0; i < 4; ++i) x[m][2 * s + (i >> 1)][2 * (i & 1) + e] = Down(w.v[2 * i], w.v[2 * i + 1]);
        }
      }
    }
    float y[TILES][4 * GROUPS][4] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      float gate[TILES][2][4], value[TILES][2][4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float2 p = *(const float2*)(gate_bias + chunk * 16 + n * 8 + 2 * t);
        float2 q = *(const float2*)(value_bias + chunk * 16 + n * 8 + 2 * t);
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
          gate[m][n][0] = gate[m][n][2] = p.x, gate[m][n][1] = gate[m][n][3] = p.y;
          value[m][n][0] = value[m][n][2] = q.x, value[m][n][1] = value[m][n][3] = q.y;
        }
      }
      const Elem* rows = up + (chunk * 32 + (lane >> 4) * 8 + (lane & 7)) * kUp + (lane >> 3 & 1) * 8;
#pragma unroll
      for (int k = 0; k < 2 * GROUPS; ++k) {
        u32 p[4], q[4];
        Ldm4(p, rows + k * 16);
        Ldm4(q, rows + 16 * kUp + k * 16);
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
          Mma(gate[m][0], x[m][k], p[0], p[1]);
          Mma(gate[m][1], x[m][k], p[2], p[3]);
          Mma(value[m][0], x[m][k], q[0], q[1]);
          Mma(value[m][1], x[m][k], q[2], q[3]);
        }
      }
      u32 h[TILES][4];
#pragma unroll
      for (int m = 0; m < TILES; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int n = i >> 1, e = 2 * (i & 1);
          h[m][i] = Down(Gelu(gate[m][n][e]) * value[m][n][e], Gelu(gate[m][n][e + 1]) * value[m][n][e + 1]);
        }
      }
      const Elem* columns = down + ((lane >> 4) * 8 + (lane & 7)) * kDown + chunk * 16 + (lane >> 3 & 1) * 8;
#pragma unroll
      for (int n = 0; n < 4 * GROUPS; n += 2) {
        u32 b[4];
        Ldm4(b, columns + n * 8 * kDown);
#pragma unroll
        for (int m = 0; m < TILES; ++m) {
          Mma(y[m][n], h[m], b[0], b[1]);
          Mma(y[m][n + 1], h[m], b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < TILES; ++m) AddTile<GROUPS>(a, y[m], down_bias, first + m * 16);
  }
}

struct Linear {
  const Elem *x, *in;  // [rows, width], [rows, elements]
  const float *weight, *bias;  // [width, elements]
  const float* factor;         // of each clip, or null
  Elem* to;                    // x + factor * (in weight' + bias)
  i64 rows, rows_of_clip;
  int width, elements;
};

// GROUPS of 32 columns, DEPTH groups of 32 elements; zeros behind both.
template <int GROUPS, int DEPTH>
__device__ __forceinline__ void LinearForward(const Linear& a) {
  constexpr int kRow = 32 * DEPTH + 8;
  int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  Elem* weight = (Elem*)memory;
  float* bias = (float*)(weight + 32 * GROUPS * kRow);
  for (int i = threadIdx.x; i < 32 * GROUPS * 16 * DEPTH; i += blockDim.x) {
    int r = i / (16 * DEPTH), c = i % (16 * DEPTH) * 2;
    float2 v = make_float2(0.f, 0.f);
    if (r < a.width && c < a.elements) v = *(const float2*)(a.weight + r * a.elements + c);
    *(u32*)(weight + AsColumn(r) * kRow + AsElement(c)) = Down(v.x, v.y);
  }
  for (int i = threadIdx.x; i < 32 * GROUPS; i += blockDim.x) bias[i] = i < a.width ? a.bias[i] : 0.f;
  __syncthreads();
  const Elem* columns = weight + ((lane >> 4) * 8 + (lane & 7)) * kRow + (lane >> 3 & 1) * 8;
  i64 step = (i64)gridDim.x * (blockDim.x >> 5) * 16;
  for (i64 first = ((i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * 16; first < a.rows; first += step) {
    uint4 in[DEPTH][2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Elem* from = a.in + min(first + e * 8 + g, a.rows - 1) * a.elements + 8 * t;
#pragma unroll
      for (int s = 0; s < DEPTH; ++s) {
        in[s][e] = 32 * s + 8 * t < a.elements ? *(const uint4*)(from + 32 * s) : make_uint4(0, 0, 0, 0);
      }
    }
    float y[4 * GROUPS][4] = {};
#pragma unroll
    for (int s = 0; s < DEPTH; ++s) {
      u32 k0[4] = {in[s][0].x, in[s][1].x, in[s][0].y, in[s][1].y};
      u32 k1[4] = {in[s][0].z, in[s][1].z, in[s][0].w, in[s][1].w};
#pragma unroll
      for (int n = 0; n < 4 * GROUPS; n += 2) {
        u32 b[4];
        Ldm4(b, columns + n * 8 * kRow + 32 * s);
        Mma(y[n], k0, b[0], b[1]);
        Mma(y[n + 1], k0, b[2], b[3]);
        Ldm4(b, columns + n * 8 * kRow + 32 * s + 16);
        Mma(y[n], k1, b[0], b[1]);
        Mma(y[n + 1], k1, b[2], b[3]);
      }
    }
    AddTile<GROUPS>(a, y, bias, first);
  }
}

extern "C" {
__global__ void __launch_bounds__(512, 1) mlp_32(Mlp a) { MlpForward<1, 1>(a); }
__global__ void __launch_bounds__(512, 1) mlp_64(Mlp a) { MlpForward<2, 1>(a); }
__global__ void __launch_bounds__(512, 1) mlp_96(Mlp a) { MlpForward<3, 1>(a); }
__global__ void __launch_bounds__(512, 1) mlp_128(Mlp a) { MlpForward<4, 1>(a); }
// Of as many columns as elements, and of twice as many elements.
__global__ void __launch_bounds__(512, 1) linear_32(Linear a) { LinearForward<1, 1>(a); }
__global__ void __launch_bounds__(512, 1) linear_32_twice(Linear a) { LinearForward<1, 2>(a); }
__global__ void __launch_bounds__(512, 1) linear_64(Linear a) { LinearForward<2, 2>(a); }
__global__ void __launch_bounds__(512, 1) linear_64_twice(Linear a) { LinearForward<2, 4>(a); }
__global__ void __launch_bounds__(512, 1) linear_96(Linear a) { LinearForward<3, 3>(a); }
__global__ void __launch_bounds__(512, 1) linear_96_twice(Linear a) { LinearForward<3, 6>(a); }
__global__ void __launch_bounds__(512, 1) linear_128(Linear a) { LinearForward<4, 4>(a); }
__global__ void __launch_bounds__(512, 1) linear_128_twice(Linear a) { LinearForward<4, 8>(a); }
}
)cuda";

}  // namespace lockstep::models::vrt::products
