// The CUDA source of vrt_products.cc for the gradients of the feed-forward half of a block; it stands behind that of
// vrt_product_source.h. One kernel makes everything between the input and the gradients again and keeps it in
// registers: norm, gate and value, GEGLU's gradient, the norm's. What goes to memory is what products over all rows
// need for the weights' gradients. These follow from two products: the second factor of each has a column of ones,
// which gives the sums over rows, and instead of the norm's result it has the rows before weight and bias: their
// gradients are sums over the product's columns.
#pragma once

namespace lockstep::models::vrt::products {

inline constexpr char kMlpGradientSource[] = R"cuda(
struct MlpGradient {
  const Elem *x, *d;  // [rows, width]: input, gradient of the result
  const float *norm, *norm_bias;
  const Elem *both, *both_bias;  // [2 * hidden, width]: gate, then value
  const Elem* down;              // [width, hidden]
  const float* factor;           // of each clip, or null
  Elem* d_both;                  // [rows, 2 * hidden]
  Elem* given;                   // [rows, hidden + 8]: factor * (what GEGLU gave, and 1)
  Elem* plain;                   // [rows, width + 8]: x less its mean over its deviation, and 1
  Elem* dx;                      // [rows, width]
  i64 rows, rows_of_clip;
  int width, hidden;
  float epsilon;
};

// As AsColumn, for groups of 16: a lane has four neighbours.
__device__ __forceinline__ int AsHidden(int c) { return (c & ~15) + (c & 2) * 4 + (c >> 2 & 3) * 2 + (c & 1); }
__device__ __forceinline__ int OfHidden(int p) { return (p & ~15) + (p >> 1 & 3) * 4 + (p >> 3 & 1) * 2 + (p & 1); }

// The normal distribution up to x as Gelu has it, and its density.
__device__ __forceinline__ float NormalUpTo(float x, float& density) {
  float z = fabsf(x) * 0.7071067811865476f, p = fmaf(z, 0.0000430638f, 0.0002765672f);
  p = fmaf(fmaf(fmaf(fmaf(fmaf(p, z, 0.0001520143f), z, 0.0092705272f), z, 0.0422820123f), z, 0.0705230784f), z, 1.f);
  p *= p, p *= p, p *= p, p *= p;
  float tail = __fdividef(0.5f, p);
  density = 0.3989422804014327f * __expf(-z * z);
  return x < 0.f ? tail : 1.f - tail;
}

__device__ __forceinline__ float OverFour(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Row `row` of x less its mean over its deviation, this lane's eighths of it; stored with a one behind it.
template <int GROUPS>
__device__ __forceinline__ void PlainRow(F8 (&v)[GROUPS], float& mean, float& inverse, const Elem* x, Elem* plain,
                                         i64 row, bool stored, int width, float epsilon) {
  int t = threadIdx.x & 3;
  float sum = 0.f, square = 0.f;
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) {
    v[s] = 32 * s + 8 * t < width ? Load(x + row * width + 32 * s + 8 * t) : Zero();
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[s].v[i];
  }
  mean = OverFour(sum) / width;
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) {
    if (32 * s + 8 * t >= width) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[s].v[i] -= mean, square += v[s].v[i] * v[s].v[i];
  }
  inverse = rsqrtf(OverFour(square) / width + epsilon);
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[s].v[i] *= inverse;
    if (stored && 32 * s + 8 * t < width) Store(plain + row * (width + 8) + 32 * s + 8 * t, v[s]);
  }
  if (stored && t == 0) *(uint4*)(plain + row * (width + 8) + width) = make_uint4(Down(1.f, 0.f), 0, 0, 0);
}

// dx = d + the norm's gradient; y is that of its result (row e of two), v the row as PlainRow gives it.
template <int GROUPS>
__device__ __forceinline__ void AddNormGradient(float (&y)[4 * GROUPS][4], int e, const F8 (&v)[GROUPS], float inverse,
                                                const float* norm, const Elem* d, Elem* dx, i64 row, bool stored,
                                                int width) {
  int t = threadIdx.x & 3;
  float one = 0.f, two = 0.f;
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) {
    F8 w = Load(norm + 32 * s + 8 * t);  // 0 behind the width
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& own = y[4 * s + (i >> 1)][2 * e + (i & 1)];
      own *= w.v[i], one += own, two += own * v[s].v[i];
    }
  }
  one = OverFour(one) / width, two = OverFour(two) / width;
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) {
    if (!stored || 32 * s + 8 * t >= width) continue;
    F8 r = Load(d + row * width + 32 * s + 8 * t);
#pragma unroll
    for (int i = 0; i < 8; ++i) r.v[i] += (y[4 * s + (i >> 1)][2 * e + (i & 1)] - one - v[s].v[i] * two) * inverse;
    Store(dx + row * width + 32 * s + 8 * t, r);
  }
}

// GROUPS of 32 columns, zeros behind `width`; a warp has 16 rows.
template <int GROUPS>
__device__ __forceinline__ void MlpBackward(const MlpGradient& a) {
  constexpr int kWidth = 32 * GROUPS, kUp = kWidth + 8;
  int kDown = a.hidden + 8, chunks = a.hidden / 16, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  Elem *up = (Elem*)memory, *down = up + 2 * a.hidden * kUp;
  float *bias = (float*)(down + kWidth * kDown), *norm = bias + 2 * a.hidden, *norm_bias = norm + kWidth;
  // Sixteen rows of the gate, then sixteen of the value.
  for (int i = threadIdx.x; i < a.hidden * kWidth; i += blockDim.x) {
    int r = i / (kWidth / 2), c = i % (kWidth / 2) * 2, from = r / 32 * 16 + OfHidden(r & 15) + (r & 16 ? a.hidden : 0);
    *(u32*)(up + r * kUp + AsElement(c)) = c < a.width ? *(const u32*)(a.both + from * a.width + c) : 0;
  }
  for (int i = threadIdx.x; i < kWidth * a.hidden / 2; i += blockDim.x) {
    int r = i / (a.hidden / 2), c = i % (a.hidden / 2) * 2;
    *(u32*)(down + AsElement(r) * kDown + AsHidden(c)) = r < a.width ? *(const u32*)(a.down + r * a.hidden + c) : 0;
  }
  for (int i = threadIdx.x; i < 2 * a.hidden; i += blockDim.x) bias[i] = One(a.both_bias + i);
  for (int i = threadIdx.x; i < kWidth; i += blockDim.x) {
    norm[i] = i < a.width ? a.norm[i] : 0.f, norm_bias[i] = i < a.width ? a.norm_bias[i] : 0.f;
  }
  __syncthreads();

  const Elem* up_rows = up + ((lane >> 4) * 8 + (lane & 7)) * kUp + (lane >> 3 & 1) * 8;
  const Elem* up_columns = up + (lane & 15) * kUp + (lane >> 4) * 8;
  const Elem* down_columns = down + (lane & 15) * kDown + (lane >> 4) * 8;
  i64 step = (i64)gridDim.x * (blockDim.x >> 5) * 16;
  for (i64 first = ((i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * 16; first < a.rows; first += step) {
    u32 x[2 * GROUPS][4], d[2 * GROUPS][4];
    float mean[2], inverse[2], factor[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      i64 own = first + e * 8 + g, row = min(own, a.rows - 1);
      factor[e] = a.factor ? a.factor[row / a.rows_of_clip] : 1.f;
      F8 v[GROUPS];
      PlainRow<GROUPS>(v, mean[e], inverse[e], a.x, a.plain, row, own < a.rows, a.width, a.epsilon);
#pragma unroll
      for (int s = 0; s < GROUPS; ++s) {
        F8 w = Load(norm + 32 * s + 8 * t), b = Load(norm_bias + 32 * s + 8 * t);
#pragma unroll
        for (int i = 0; i < 8; ++i) w.v[i] = fmaf(v[s].v[i], w.v[i], b.v[i]);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[2 * s + (i >> 1)][2 * (i & 1) + e] = Down(w.v[2 * i], w.v[2 * i + 1]);
        uint4 q = make_uint4(0, 0, 0, 0);
        if (32 * s + 8 * t < a.width) q = *(const uint4*)(a.d + row * a.width + 32 * s + 8 * t);
        d[2 * s][e] = q.x, d[2 * s][2 + e] = q.y, d[2 * s + 1][e] = q.z, d[2 * s + 1][2 + e] = q.w;
      }
      if (t == 0 && own < a.rows) {
        *(uint4*)(a.given + row * (a.hidden + 8) + a.hidden) = make_uint4(Down(factor[e], 0.f), 0, 0, 0);
      }
    }
    float y[4 * GROUPS][4] = {};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      float gate[2][4], value[2][4], back[2][4] = {};
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        float2 p = *(const float2*)(bias + chunk * 16 + 4 * t + 2 * n);
        float2 q = *(const float2*)(bias + a.hidden + chunk * 16 + 4 * t + 2 * n);
        gate[n][0] = gate[n][2] = p.x, gate[n][1] = gate[n][3] = p.y;
        value[n][0] = value[n][2] = q.x, value[n][1] = value[n][3] = q.y;
      }
#pragma unroll
      for (int k = 0; k < 2 * GROUPS; ++k) {
        u32 p[4], q[4], b[4];
        Ldm4(p, up_rows + chunk * 32 * kUp + k * 16);
        Ldm4(q, up_rows + (chunk * 32 + 16) * kUp + k * 16);
        Ldm4T(b, down_columns + k * 16 * kDown + chunk * 16);
        Mma(gate[0], x[k], p[0], p[1]);
        Mma(gate[1], x[k], p[2], p[3]);
        Mma(value[0], x[k], q[0], q[1]);
        Mma(value[1], x[k], q[2], q[3]);
        Mma(back[0], d[k], b[0], b[1]);
        Mma(back[1], d[k], b[2], b[3]);
      }
      u32 p[4], q[4], h[4];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float density, part = NormalUpTo(gate[n][i], density), gelu = gate[n][i] * part, u = value[n][i];
          float dh = back[n][i] * factor[i >> 1];
          back[n][i] = gelu * u * factor[i >> 1];
          value[n][i] = dh * gelu;
          gate[n][i] = dh * u * fmaf(gate[n][i], density, part);
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          p[2 * n + e] = Down(gate[n][2 * e], gate[n][2 * e + 1]);
          q[2 * n + e] = Down(value[n][2 * e], value[n][2 * e + 1]);
          h[2 * n + e] = Down(back[n][2 * e], back[n][2 * e + 1]);
        }
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        i64 row = first + e * 8 + g;
        if (row >= a.rows) continue;
        int c = chunk * 16 + 4 * t;
        *(uint2*)(a.d_both + row * 2 * a.hidden + c) = make_uint2(p[e], p[2 + e]);
        *(uint2*)(a.d_both + row * 2 * a.hidden + a.hidden + c) = make_uint2(q[e], q[2 + e]);
        *(uint2*)(a.given + row * (a.hidden + 8) + c) = make_uint2(h[e], h[2 + e]);
      }
#pragma unroll
      for (int n = 0; n < 4 * GROUPS; n += 2) {
        u32 b[4];
        Ldm4T(b, up_columns + chunk * 32 * kUp + n * 8);
        Mma(y[n], p, b[0], b[1]);
        Mma(y[n + 1], p, b[2], b[3]);
        Ldm4T(b, up_columns + (chunk * 32 + 16) * kUp + n * 8);
        Mma(y[n], q, b[0], b[1]);
        Mma(y[n + 1], q, b[2], b[3]);
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      i64 own = first + e * 8 + g, row = min(own, a.rows - 1);
      F8 v[GROUPS];
#pragma unroll
      for (int s = 0; s < GROUPS; ++s) {
        v[s] = 32 * s + 8 * t < a.width ? Load(a.x + row * a.width + 32 * s + 8 * t) : Zero();
#pragma unroll
        for (int i = 0; i < 8; ++i) v[s].v[i] = (v[s].v[i] - mean[e]) * inverse[e];
      }
      AddNormGradient<GROUPS>(y, e, v, inverse[e], norm, a.d, a.dx, row, own < a.rows, a.width);
    }
  }
}

// The gradient of a norm behind which a linear layer without the residual stands.
struct LinearGradient {
  const Elem *x, *d;     // [rows, width]: the norm's input, the gradient that goes along
  const Elem* d_linear;  // [rows, columns]: of the layer's result
  const Elem* weight;    // [columns, width]
  const float *norm, *factor;  // factor of each clip, or null
  Elem *plain, *dx;            // [rows, width + 8] as above, [rows, width]
  float* along;                // [gridDim.x, width]: sums of factor * d
  i64 rows, rows_of_clip;
  int width, columns;
  float epsilon;
};

template <int GROUPS>
__device__ __forceinline__ void LinearBackward(const LinearGradient& a) {
  constexpr int kWidth = 32 * GROUPS, kRow = kWidth + 8, kAhead = 3;
  int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3, parts = (a.columns + 31) / 32;
  Elem* weight = (Elem*)memory;
  float *norm = (float*)(weight + 32 * parts * kRow), *sums = norm + kWidth;  // sums: [warps, kWidth]
  for (int i = threadIdx.x; i < 32 * parts * kWidth / 2; i += blockDim.x) {
    int r = i / (kWidth / 2), c = i % (kWidth / 2) * 2;
    *(u32*)(weight + AsElement(r) * kRow + AsColumn(c)) =
        r < a.columns && c < a.width ? *(const u32*)(a.weight + r * a.width + c) : 0;
  }
  for (int i = threadIdx.x; i < kWidth; i += blockDim.x) norm[i] = i < a.width ? a.norm[i] : 0.f;
  __syncthreads();
  const Elem* columns = weight + (lane & 15) * kRow + (lane >> 4) * 8;
  F8 along[GROUPS];
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) along[s] = Zero();
  i64 step = (i64)gridDim.x * (blockDim.x >> 5) * 16;
  for (i64 first = ((i64)blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * 16; first < a.rows; first += step) {
    float y[4 * GROUPS][4] = {};
    const Elem* from[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) from[e] = a.d_linear + min(first + e * 8 + g, a.rows - 1) * a.columns + 8 * t;
    for (int part = 0; part < parts; part += kAhead) {
      uint4 in[kAhead][2];
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          int c = 32 * (part + s);
          in[s][e] = c + 8 * t < a.columns ? *(const uint4*)(from[e] + c) : make_uint4(0, 0, 0, 0);
        }
      }
#pragma unroll
      for (int s = 0; s < kAhead; ++s) {
        if (part + s >= parts) continue;
        u32 k0[4] = {in[s][0].x, in[s][1].x, in[s][0].y, in[s][1].y};
        u32 k1[4] = {in[s][0].z, in[s][1].z, in[s][0].w, in[s][1].w};
        const Elem* rows = columns + 32 * (part + s) * kRow;
#pragma unroll
        for (int n = 0; n < 4 * GROUPS; n += 2) {
          u32 b[4];
          Ldm4T(b, rows + n * 8);
          Mma(y[n], k0, b[0], b[1]);
          Mma(y[n + 1], k0, b[2], b[3]);
          Ldm4T(b, rows + 16 * kRow + n * 8);
          Mma(y[n], k1, b[0], b[1]);
          Mma(y[n + 1], k1, b[2], b[3]);
        }
      }
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      i64 own = first + e * 8 + g, row = min(own, a.rows - 1);
      F8 v[GROUPS];
      float mean, inverse, factor = own < a.rows ? a.factor ? a.factor[row / a.rows_of_clip] : 1.f : 0.f;
      PlainRow<GROUPS>(v, mean, inverse, a.x, a.plain, row, own < a.rows, a.width, a.epsilon);
      AddNormGradient<GROUPS>(y, e, v, inverse, norm, a.d, a.dx, row, own < a.rows, a.width);
#pragma unroll
      for (int s = 0; s < GROUPS; ++s) {
        if (32 * s + 8 * t >= a.width) continue;
        F8 d = Load(a.d + row * a.width + 32 * s + 8 * t);
#pragma unroll
        for (int i = 0; i < 8; ++i) along[s].v[i] += factor * d.v[i];
      }
    }
  }
#pragma unroll
  for (int s = 0; s < GROUPS; ++s) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = along[s].v[i];
      sum += __shfl_xor_sync(0xffffffffu, sum, 4);
      sum += __shfl_xor_sync(0xffffffffu, sum, 8);
      sum += __shfl_xor_sync(0xffffffffu, sum, 16);
      if (g == 0) sums[(threadIdx.x >> 5) * kWidth + 32 * s + 8 * t + i] = sum;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
    float sum = 0.f;
    for (int k = 0; k < blockDim.x >> 5; ++k) sum += sums[k * kWidth + i];
    a.along[(i64)blockIdx.x * a.width + i] = sum;
  }
}

extern "C" {
__global__ void __launch_bounds__(384, 1) mlp_gradient_32(MlpGradient a) { MlpBackward<1>(a); }
__global__ void __launch_bounds__(384, 1) mlp_gradient_64(MlpGradient a) { MlpBackward<2>(a); }
__global__ void __launch_bounds__(384, 1) mlp_gradient_96(MlpGradient a) { MlpBackward<3>(a); }
__global__ void __launch_bounds__(384, 1) mlp_gradient_128(MlpGradient a) { MlpBackward<4>(a); }
__global__ void __launch_bounds__(384, 1) linear_gradient_32(LinearGradient a) { LinearBackward<1>(a); }
__global__ void __launch_bounds__(384, 1) linear_gradient_64(LinearGradient a) { LinearBackward<2>(a); }
__global__ void __launch_bounds__(384, 1) linear_gradient_96(LinearGradient a) { LinearBackward<3>(a); }
__global__ void __launch_bounds__(384, 1) linear_gradient_128(LinearGradient a) { LinearBackward<4>(a); }

// Of a linear layer behind a norm. product [columns, width + 8]: the layer's gradient times the norm's rows before
// weight and bias, its sums over rows behind them. Eight columns of the width for each block, 32 rows at a time.
__global__ void __launch_bounds__(256) behind_norm(const float* product, const Elem* weight, const float* norm,
                                                   const float* norm_bias, float* d_weight, float* d_bias,
                                                   float* d_norm, float* d_norm_bias, int columns, int width) {
  __shared__ float parts[2][256];
  int c = blockIdx.x * 8 + (threadIdx.x & 7);
  float of_norm = 0.f, of_bias = 0.f, w = norm[c], b = norm_bias[c];
  for (int k = threadIdx.x >> 3; k < columns; k += 32) {
    const float* row = product + (i64)k * (width + 8);
    float m = row[c], sum = row[width], own = One(weight + (i64)k * width + c);
    d_weight[(i64)k * width + c] = m * w + sum * b;
    of_norm += own * m, of_bias += own * sum;
    if (c == 0) d_bias[k] = sum;
  }
  parts[0][threadIdx.x] = of_norm, parts[1][threadIdx.x] = of_bias;
  __syncthreads();
  if (threadIdx.x >= 8) return;
  for (int i = 1; i < 32; ++i) of_norm += parts[0][i * 8 + threadIdx.x], of_bias += parts[1][i * 8 + threadIdx.x];
  d_norm[c] = of_norm, d_norm_bias[c] = of_bias;
}
}
)cuda";

}  // namespace lockstep::models::vrt::products
