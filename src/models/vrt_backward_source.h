// The CUDA source of vrt_kernels.cc for the gradients of attention; it stands behind that of vrt_source.h. Windows of
// more than two frames: one kernel goes by keys, one by queries together with the bias. Smaller ones are in
// vrt_shallow_source.h; those that fit into neither have kernels here that go by one after the other.
#pragma once

namespace lockstep::models::vrt::kernels {

inline constexpr char kBackwardSource[] = R"cuda(
// Everything that backward reads of a window: queries, keys, values, the output's gradient.
template <int P>
__device__ __forceinline__ void LoadBackward(const Attention& a, const Shared<P>& m, const Window& o, int head) {
  int tokens = 64 * a.depth;
  const Elem* from = a.qkv + a.first + head * a.size;
  const Elem* code = a.code ? a.code + head * a.size : 0;
  for (int i = threadIdx.x; i < tokens; i += blockDim.x) {
    int row = RowOf(a, o, i);
    i64 at = (i64)row * a.lse_stride + a.lse_first + head;
    m.rows[i] = row, m.lse[i] = a.lse[at], m.delta[i] = a.delta[at];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    LoadWindow<P>(m.tensor[i], from + i * a.width, m.rows, tokens, a.stride, a.size, code ? code + i * a.width : 0,
                  3 * a.width);
  }
  LoadWindow<P>(m.tensor[3], a.d_out + a.out_first + head * a.size, m.rows, tokens, a.out_stride, a.size, 0, 0);
}

// Of keys and values, and of queries where QUERIES says so.
template <int P, bool MUTUAL, bool QUERIES>
__device__ __forceinline__ void Backward(const Attention& a) {
  Shared<P> m(a, 4);
  int head = blockIdx.y, lane = threadIdx.x & 31, t = lane & 3, g = lane >> 2;
  Window o = WindowOf(a, blockIdx.x);
  LoadBackward<P>(a, m, o, head);
  if (!MUTUAL) LoadBias(m.bias, a, head);
  Arrived();
  Elem* to = a.d_qkv + a.first + head * a.size;
  float scale = a.scale * LOG2E;
  // Of keys and values: the tile has 16 of them, and goes through all queries.
  for (int tile = threadIdx.x >> 5; tile < 4 * a.depth; tile += blockDim.x >> 5) {
    int key = tile >> 2;
    Operand<P> k, v;
    k.Load(m.tensor[1] + tile * 16 * STRIDE(P));
    v.Load(m.tensor[2] + tile * 16 * STRIDE(P));
    float d_key[P / 8][4] = {}, d_value[P / 8][4] = {};
    for (int f = MUTUAL ? key : 0; f < (MUTUAL ? key + 1 : a.depth); ++f) {
      int query = MUTUAL ? 1 - f : f;
      const Elem *q = m.tensor[0] + query * 64 * STRIDE(P), *d_out = m.tensor[3] + f * 64 * STRIDE(P);
      const float *lse = m.lse + f * 64 + 2 * t, *delta = m.delta + f * 64 + 2 * t;
      float s[8][4], d[8][4];
      Scores<P>(s, k, q);
      Finish<!MUTUAL, true>(s, m.bias + (query - key + a.depth - 1) * 225, tile & 3, o,
                            !MUTUAL && (query >= o.cut_d) != (key >= o.cut_d), scale);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        float2 x = *(const float2*)(lse + n * 8);
        s[n][0] = Exp2(s[n][0] - x.x), s[n][1] = Exp2(s[n][1] - x.y);
        s[n][2] = Exp2(s[n][2] - x.x), s[n][3] = Exp2(s[n][3] - x.y);
      }
      AddProduct<P>(d_value, s, d_out);
      Scores<P>(d, v, d_out);
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        float2 x = *(const float2*)(delta + n * 8);
        s[n][0] *= d[n][0] - x.x, s[n][1] *= d[n][1] - x.y;
        s[n][2] *= d[n][2] - x.x, s[n][3] *= d[n][3] - x.y;
      }
      AddProduct<P>(d_key, s, q);
    }
    StoreTile<P>(to + a.width, d_key, m.rows + tile * 16, a.stride, a.size, a.scale, a.scale);
    StoreTile<P>(to + 2 * a.width, d_value, m.rows + tile * 16, a.stride, a.size, 1.f, 1.f);
  }
  if (!QUERIES) return;
  // Of queries: the tile has 16 of them, and goes through all keys.
  for (int tile = threadIdx.x >> 5; tile < 4 * a.depth; tile += blockDim.x >> 5) {
    int query = tile >> 2, f = MUTUAL ? 1 - query : query, row = f * 64 + (tile & 3) * 16;
    Operand<P> q, d_out;
    q.Load(m.tensor[0] + tile * 16 * STRIDE(P));
    d_out.Load(m.tensor[3] + row * STRIDE(P));
    float lse[2] = {m.lse[row + g], m.lse[row + g + 8]}, delta[2] = {m.delta[row + g], m.delta[row + g + 8]};
    float sum[P / 8][4] = {};
    for (int key = MUTUAL ? f : 0; key < (MUTUAL ? f + 1 : a.depth); ++key) {
      float s[8][4], d[8][4];
      Scores<P>(s, q, m.tensor[1] + key * 64 * STRIDE(P));
      Finish<!MUTUAL, false>(s, m.bias + (query - key + a.depth - 1) * 225, tile & 3, o,
                             !MUTUAL && (query >= o.cut_d) != (key >= o.cut_d), scale);
      Scores<P>(d, d_out, m.tensor[2] + key * 64 * STRIDE(P));
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) s[n][i] = Exp2(s[n][i] - lse[i >> 1]) * (d[n][i] - delta[i >> 1]);
      }
      AddProduct<P>(sum, s, m.tensor[1] + key * 64 * STRIDE(P));
    }
    StoreTile<P>(to, sum, m.rows + tile * 16, a.stride, a.size, a.scale, a.scale);
  }
}

// Sums of the bias's gradient over a warp's rows and keys that are as far apart, in registers.
template <int SLOTS>
struct BiasSums {
  float sum[SLOTS][9][2] = {};

  // To a.d_bias, of all windows of this block. A warp has one of four tiles and one of `groups` groups of differences
  // between frames, each of SLOTS.
  __device__ __forceinline__ void Store(const Attention& a, int groups) const {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, apart = 2 * a.depth - 1;
    float* all = (float*)memory;  // [warps, 18, 32] at a time
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < 18; ++i) all[(warp * 18 + i) * 32 + lane] = sum[slot][i >> 1][i & 1];
      __syncthreads();
      for (int i = threadIdx.x; i < groups * 225; i += blockDim.x) {
        int own = i / 225, index = own + slot * groups, dh = i % 225 / 15 - 7, dw = i % 15 - 7;
        if (index >= apart) continue;
        float total = 0.f;
        for (int r = 0; r < 4; ++r) {
          int j = dh - 2 * r + 7;
          if (j < 0 || j > 8) continue;
          for (int w = max(0, -dw); w < min(8, 8 - dw); ++w) {
            total += all[((own * 4 + r) * 18 + 2 * j + (w & 1)) * 32 + (w + dw) * 4 + (w >> 1)];
          }
        }
        a.d_bias[(((i64)blockIdx.x * a.heads + blockIdx.y) * apart + index) * 225 + i % 225] = total;
      }
    }
  }
};

// The gradient of the bias, summed over windows blockIdx.x, + gridDim.x, ...
template <int P, int SLOTS>
__device__ __forceinline__ void BackwardBias(const Attention& a) {
  Shared<P> m(a, 4);
  int head = blockIdx.y, lane = threadIdx.x & 31, g = lane >> 2, warp = threadIdx.x >> 5;
  int tile = warp & 3, group = warp >> 2, groups = blockDim.x >> 7, apart = 2 * a.depth - 1;
  BiasSums<SLOTS> bias;
  LoadBias(m.bias, a, head);
  for (int window = blockIdx.x; window < a.windows; window += gridDim.x) {
    Window o = WindowOf(a, window);
    __syncthreads();
    LoadBackward<P>(a, m, o, head);
    Arrived();
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      int index = group + slot * groups, far = index - a.depth + 1;
      if (index >= apart) break;
      for (int query = max(0, far); query < min(a.depth, a.depth + far); ++query) {
        int key = query - far, row = query * 64 + tile * 16;
        Operand<P> first;
        first.Load(m.tensor[0] + row * STRIDE(P));
        float lse[2] = {m.lse[row + g], m.lse[row + g + 8]}, delta[2] = {m.delta[row + g], m.delta[row + g + 8]};
        float s[8][4], d[8][4];
        Scores<P>(s, first, m.tensor[1] + key * 64 * STRIDE(P));
        Finish<true, false>(s, m.bias + index * 225, tile, o, (query >= o.cut_d) != (key >= o.cut_d), a.scale * LOG2E);
        first.Load(m.tensor[3] + row * STRIDE(P));
        Scores<P>(d, first, m.tensor[2] + key * 64 * STRIDE(P));
#pragma unroll
        for (int n = 0; n < 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            bias.sum[slot][(i >> 1) - n + 7][i & 1] += Exp2(s[n][i] - lse[i >> 1]) * (d[n][i] - delta[i >> 1]);
          }
        }
      }
    }
  }
  bias.Store(a, groups);
}

// Waits for the warps that share a barrier.
__device__ __forceinline__ void Meet(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads));
}

// Of queries and of the bias together, for windows of several frames; windows as in BackwardBias, the next one is
// copied while one is computed. Three warps share a tile of queries: each has the keys of its differences between
// frames, and their parts of the queries' gradient are added by one of them in turns.
template <int P, int SLOTS>
__device__ __forceinline__ void BackwardQueries(const Attention& a) {
  constexpr int kGroups = 3, kTile = 16 * P;
  int head = blockIdx.y, tokens = 64 * a.depth, lane = threadIdx.x & 31, g = lane >> 2, warp = threadIdx.x >> 5;
  int tile = warp & 3, group = warp >> 2;
  // Two windows: queries, keys, values, the output's gradient; then two numbers and the row of each token.
  Elem* tensors = (Elem*)memory;
  float* numbers = (float*)(tensors + 8 * tokens * STRIDE(P));
  int* places = (int*)(numbers + 4 * tokens);
  float *table = (float*)(places + 2 * tokens), *parts = table + (2 * a.depth - 1) * 225 + 1;  // [2, 2, 4, 16, P]
  const Elem* from = a.qkv + a.first + head * a.size;
  const auto find = [&](int window, int at) {
    Window o = WindowOf(a, window);
    for (int i = threadIdx.x; i < tokens; i += blockDim.x) places[at * tokens + i] = RowOf(a, o, i);
  };
  const auto fetch = [&](int at) {
    const int* rows = places + at * tokens;
    for (int i = threadIdx.x; i < tokens; i += blockDim.x) {
      i64 own = (i64)rows[i] * a.lse_stride + a.lse_first + head;
      CopyAsync4(numbers + 2 * at * tokens + i, a.lse + own);
      CopyAsync4(numbers + (2 * at + 1) * tokens + i, a.delta + own);
    }
    Elem* to = tensors + 4 * at * tokens * STRIDE(P);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Elem* source = i < 3 ? from + i * a.width : a.d_out + a.out_first + head * a.size;
      LoadWindow<P>(to + i * tokens * STRIDE(P), source, rows, tokens, i < 3 ? a.stride : a.out_stride, a.size, 0, 0);
    }
  };
  BiasSums<SLOTS> bias;
  LoadBias(table, a, head);
  find(blockIdx.x, 0);
  __syncthreads();
  fetch(0);
  for (int window = blockIdx.x, at = 0; window < a.windows; window += gridDim.x, at ^= 1) {
    Arrived();
    if (window + gridDim.x < a.windows) {
      find(window + gridDim.x, at ^ 1);
      __syncthreads();
      fetch(at ^ 1);
    }
    Window o = WindowOf(a, window);
    const Elem *queries = tensors + 4 * at * tokens * STRIDE(P), *keys = queries + tokens * STRIDE(P);
    const Elem *values = keys + tokens * STRIDE(P), *d_outs = values + tokens * STRIDE(P);
    for (int query = 0; query < a.depth; ++query) {
      int row = query * 64 + tile * 16;
      Operand<P> q, d_out;
      q.Load(queries + row * STRIDE(P));
      d_out.Load(d_outs + row * STRIDE(P));
      const float* own = numbers + 2 * at * tokens + row + g;
      float lse[2] = {own[0], own[8]}, delta[2] = {own[tokens], own[tokens + 8]};
      float sum[P / 8][4] = {};
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        int index = group + slot * kGroups, key = query - index + a.depth - 1;
        if (key < 0 || key >= a.depth) continue;
        const auto half = [&](auto first) {  // 32 keys
          constexpr int kFirst = decltype(first)::kLine;
          const int offset = (key * 64 + kFirst * 8) * STRIDE(P);
          float s[4][4], d[4][4];
          Scores<P>(s, q, keys + offset);
          Finish<true, false, kFirst>(s, table + index * 225, tile, o, (query >= o.cut_d) != (key >= o.cut_d),
                                      a.scale * LOG2E);
          Scores<P>(d, d_out, values + offset);
#pragma unroll
          for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              s[n][i] = Exp2(s[n][i] - lse[i >> 1]) * (d[n][i] - delta[i >> 1]);
              bias.sum[slot][(i >> 1) - n - kFirst + 7][i & 1] += s[n][i];
            }
          }
          AddProduct<P>(sum, s, keys + offset);
        };
        half(Line<0>());
        half(Line<4>());
      }
      int owner = query % kGroups, turn = group < owner ? group : group - 1;
      float* part = parts + (((query & 1) * 2 + turn) * 4 + tile) * kTile + lane * 2;
      if (group != owner) {
#pragma unroll
        for (int i = 0; i < P / 4; ++i) *(float2*)(part + 64 * i) = make_float2(sum[i >> 1][2 * (i & 1)], sum[i >> 1][2 * (i & 1) + 1]);
      }
      Meet(1 + tile, 32 * kGroups);
      if (group != owner) continue;
      part = parts + ((query & 1) * 8 + tile) * kTile + lane * 2;
#pragma unroll
      for (int i = 0; i < P / 4; ++i) {
        float2 one = *(const float2*)(part + 64 * i), two = *(const float2*)(part + 4 * kTile + 64 * i);
        sum[i >> 1][2 * (i & 1)] += one.x + two.x, sum[i >> 1][2 * (i & 1) + 1] += one.y + two.y;
      }
      StoreTile<P>(a.d_qkv + a.first + head * a.size, sum, places + at * tokens + row, a.stride, a.size, a.scale, a.scale);
    }
  }
  __syncthreads();
  bias.Store(a, kGroups);
}

extern "C" {
#define BACKWARD(P)                                                                                           \
  __global__ void __launch_bounds__(256, 2) backward_##P(Attention a) { Backward<P, false, true>(a); }       \
  __global__ void __launch_bounds__(256, 2) backward_keys_##P(Attention a) { Backward<P, false, false>(a); } \
  __global__ void __launch_bounds__(256, 3) backward_mutual_##P(Attention a) { Backward<P, true, true>(a); } \
  __global__ void __launch_bounds__(384, 1) bias_##P(Attention a) { BackwardBias<P, 4>(a); }                 \
  __global__ void __launch_bounds__(384, 1) bias_deep_##P(Attention a) { BackwardBias<P, 5>(a); }            \
  __global__ void __launch_bounds__(384, 1) queries_##P(Attention a) { BackwardQueries<P, 4>(a); }
BACKWARD(16)
BACKWARD(24)
BACKWARD(32)

// delta[row, head] = the sum of gradient times output.
__global__ void delta(const Elem* d, const Elem* out, float* to, i64 count, int size) {
  for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) {
    float sum = 0.f;
    if (size % 4 == 0) {
#pragma unroll 4
      for (int c = 0; c < size; c += 4) {
        uint2 a = *(const uint2*)(d + i * size + c), b = *(const uint2*)(out + i * size + c);
        sum += Up(a.x & 0xffff) * Up(b.x & 0xffff) + Up(a.x >> 16) * Up(b.x >> 16);
        sum += Up(a.y & 0xffff) * Up(b.y & 0xffff) + Up(a.y >> 16) * Up(b.y >> 16);
      }
    } else {
      for (int c = 0; c < size; c += 2) {
        u32 a = *(const u32*)(d + i * size + c), b = *(const u32*)(out + i * size + c);
        sum += Up(a & 0xffff) * Up(b & 0xffff) + Up(a >> 16) * Up(b >> 16);
      }
    }
    to[i] = sum;
  }
}

// The table's gradient [positions, heads] from parts [splits, heads, positions].
__global__ void bias_table(const float* parts, float* to, int splits, int heads, int positions) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= positions * heads) return;
  int head = i / positions, place = i % positions;
  float total = 0.f;
  for (int s = 0; s < splits; ++s) total += parts[((i64)s * heads + head) * positions + place];
  to[place * heads + head] = total;
}

// Sums of the rows whose token has place blockIdx.x of its window, queries, keys and values: [gridDim.y, 64, 3 * width].
// A thread has four columns, and one of some rows at a time.
__global__ void __launch_bounds__(512) place_sums(const Elem* x, float* to, Attention a, int clips) {
  __shared__ float4 parts[512];
  int quads = 3 * a.width / 4, lanes = blockDim.x / quads, own = threadIdx.x / quads, c = threadIdx.x % quads;
  int place = blockIdx.x, nw = a.columns / 8, nh = a.rows / 8, count = clips * a.frames * nh * nw;
  int h0 = place / 8 + a.shift_h, w0 = place % 8 + a.shift_w;
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
  for (int i = blockIdx.y * lanes + own; i < count; i += gridDim.y * lanes) {
    int line = i / nw, w = (i - line * nw) * 8 + w0, frame = line / nh, h = (line - frame * nh) * 8 + h0;
    w -= w >= a.columns ? a.columns : 0, h -= h >= a.rows ? a.rows : 0;
    uint2 v = ((const uint2*)(x + (((i64)frame * a.rows + h) * a.columns + w) * a.stride + a.first))[c];
    sum.x += Up(v.x & 0xffff), sum.y += Up(v.x >> 16), sum.z += Up(v.y & 0xffff), sum.w += Up(v.y >> 16);
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (own > 0) return;
  for (int i = 1; i < lanes; ++i) {
    float4 v = parts[i * quads + c];
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }
  ((float4*)(to + ((i64)blockIdx.y * 64 + place) * 3 * a.width))[c] = sum;
}
}
)cuda";

}  // namespace lockstep::models::vrt::kernels
