// The CUDA source of vrt_kernels.cc for attention of windows of one or two frames in a backward pass; it stands behind
// that of vrt_source.h. A query's logits fit into registers, so forward is made again in the same kernel, once: shares
// of attention and their gradients lie in shared memory between the half that goes by queries and the one that goes by
// keys. A block has one head and goes through some windows: sums over windows stay in registers.
#pragma once

namespace lockstep::models::vrt::kernels {

inline constexpr char kShallowSource[] = R"cuda(
template <int P>
__device__ __forceinline__ void AddTimes(float (&sum)[P / 8][4], const float (&x)[P / 8][4], float factor) {
#pragma unroll
  for (int n = 0; n < P / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[n][i] += factor * x[n][i];
  }
}

// A query sees all keys of FRAMES frames. MUTUAL as in Forward (of two frames, each sees one); places, of a mutual
// part: [2 * gridDim.x, 64, 3 * width], sums of queries', keys' and values' gradients over windows.
template <int P, int FRAMES, bool MUTUAL>
struct ShallowBlock {
  static constexpr int kRow = 64 * FRAMES + 8;  // of shares
  const Attention& a;
  Elem *tensor[4], *shares, *d_shares;  // queries, keys, values, the output's gradient; shares [tokens, kRow]
  float* table;
  int* rows;
  int head, tokens, lane, g, t, frame, tile;
  int query, own, of_query;  // the output of frame `frame` is made from queries of `query`; their first tokens
  float bias[FRAMES][9][2] = {}, sums[MUTUAL ? 3 : 1][P / 8][4] = {};

  __device__ __forceinline__ explicit ShallowBlock(const Attention& attention) : a(attention) {
    head = blockIdx.y, tokens = 64 * a.depth, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    frame = threadIdx.x >> 7, tile = threadIdx.x >> 5 & 3;
    query = MUTUAL ? 1 - frame : frame, own = frame * 64 + tile * 16, of_query = query * 64 + tile * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) tensor[i] = (Elem*)memory + i * tokens * STRIDE(P);
    shares = (Elem*)memory + 4 * tokens * STRIDE(P), d_shares = shares + tokens * kRow;
    table = (float*)(d_shares + tokens * kRow);
    rows = (int*)(table + (2 * a.depth - 1) * 225 + 1);
    if (!MUTUAL) LoadBias(table, a, head);
  }

  __device__ __forceinline__ void Fetch(const Window& o) const {
    const Elem* from = a.qkv + a.first + head * a.size;
    const Elem* code = a.code ? a.code + head * a.size : 0;
    for (int i = threadIdx.x; i < tokens; i += blockDim.x) rows[i] = RowOf(a, o, i);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      LoadWindow<P>(tensor[i], from + i * a.width, rows, tokens, a.stride, a.size, code ? code + i * a.width : 0,
                    3 * a.width);
    }
    LoadWindow<P>(tensor[3], a.d_out + a.out_first + head * a.size, rows, tokens, a.out_stride, a.size, 0, 0);
    Arrived();
  }

  // Shares of the tile's queries: p[.][.][0] of row g, [1] of row g + 8.
  __device__ __forceinline__ void Attend(const Window& o, u32 (&p)[FRAMES][8][2]) const {
    Operand<P> q;
    q.Load(tensor[0] + of_query * STRIDE(P));
    float s[FRAMES][8][4], most[2] = {NEGATIVE, NEGATIVE}, total[2] = {0.f, 0.f};
#pragma unroll
    for (int f = 0; f < FRAMES; ++f) {
      int key = MUTUAL ? frame : f;
      Scores<P>(s[f], q, tensor[1] + key * 64 * STRIDE(P));
      Finish<!MUTUAL, false>(s[f], table + (query - key + a.depth - 1) * 225, tile, o,
                             !MUTUAL && (query >= o.cut_d) != (key >= o.cut_d), a.scale * LOG2E);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int i = 0; i < 8 * FRAMES; ++i) {
        const float (&x)[4] = s[i / 8][i % 8];
        most[r] = fmaxf(most[r], fmaxf(x[2 * r], x[2 * r + 1]));
      }
      most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 1));
      most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], 2));
#pragma unroll
      for (int i = 0; i < 8 * FRAMES; ++i) {
        float (&x)[4] = s[i / 8][i % 8];
        x[2 * r] = Exp2(x[2 * r] - most[r]), x[2 * r + 1] = Exp2(x[2 * r + 1] - most[r]);
        total[r] += x[2 * r] + x[2 * r + 1];
      }
    }
    Total(total);
    total[0] = 1.f / total[0], total[1] = 1.f / total[1];
#pragma unroll
    for (int i = 0; i < 8 * FRAMES; ++i) {
      const float (&x)[4] = s[i / 8][i % 8];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        p[i / 8][i % 8][r] = Down(x[2 * r] * total[r], x[2 * r + 1] * total[r]);
        *(u32*)(shares + (own + g + 8 * r) * kRow + i * 8 + 2 * t) = p[i / 8][i % 8][r];
      }
    }
  }

  // From shares to the output, and from its gradient to those of shares, queries and bias.
  __device__ __forceinline__ void Queries(u32 (&p)[FRAMES][8][2]) {
    const Elem *keys = tensor[1] + (MUTUAL ? frame * 64 : 0) * STRIDE(P), *values = keys + tokens * STRIDE(P);
    float delta[2] = {0.f, 0.f};
    {
      float sum[P / 8][4] = {};
#pragma unroll
      for (int k = 0; k < 4 * FRAMES; ++k) {
        const u32 (&x)[8][2] = p[k / 4];
        u32 four[4] = {x[k % 4 * 2][0], x[k % 4 * 2][1], x[k % 4 * 2 + 1][0], x[k % 4 * 2 + 1][1]};
        AddStep<P>(sum, four, values + k * 16 * STRIDE(P));
      }
      if (a.out) StoreTile<P>(a.out + a.out_first + head * a.size, sum, rows + own, a.out_stride, a.size, 1.f, 1.f);
#pragma unroll
      for (int n = 0; n < P / 8; ++n) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          u32 d = *(const u32*)(tensor[3] + (own + g + 8 * r) * STRIDE(P) + n * 8 + 2 * t);
          delta[r] += sum[n][2 * r] * Up(d & 0xffff) + sum[n][2 * r + 1] * Up(d >> 16);
        }
      }
      Total(delta);
    }
    Operand<P> d_out;
    d_out.Load(tensor[3] + own * STRIDE(P));
    float sum[P / 8][4] = {};
#pragma unroll
    for (int n = 0; n < 8 * FRAMES; n += 2) {  // 16 keys at a time
      float d[2][4];
      Scores<P>(d, d_out, values + n * 8 * STRIDE(P));
      u32 four[4];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        int line = (n + j) % 8;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          u32 share = p[n / 8][line][r];
          float x = Up(share & 0xffff) * (d[j][2 * r] - delta[r]), y = Up(share >> 16) * (d[j][2 * r + 1] - delta[r]);
          if (!MUTUAL) bias[n / 8][r - line + 7][0] += x, bias[n / 8][r - line + 7][1] += y;
          four[2 * j + r] = Down(x, y);
          *(u32*)(d_shares + (own + g + 8 * r) * kRow + (n + j) * 8 + 2 * t) = four[2 * j + r];
        }
      }
      AddStep<P>(sum, four, keys + n * 8 * STRIDE(P));
    }
    StoreTile<P>(a.d_qkv + a.first + head * a.size, sum, rows + of_query, a.stride, a.size, a.scale, a.scale);
    if (MUTUAL) AddTimes<P>(sums[0], sum, a.scale);
  }

  // Keys and values: the tile has 16 of them, and goes through all queries that see them.
  __device__ __forceinline__ void Keys() {
    float d_key[P / 8][4] = {}, d_value[P / 8][4] = {};
    int queries = MUTUAL ? 64 : tokens, first = MUTUAL ? frame * 64 : 0, column = MUTUAL ? tile * 16 : own;
    const Elem* q = tensor[0] + (MUTUAL ? query * 64 : 0) * STRIDE(P);
    const Elem* d_out = tensor[3] + first * STRIDE(P);
    int at = (first + (lane & 7) + (lane >> 4) * 8) * kRow + column + (lane >> 3 & 1) * 8;  // shares are read transposed
#pragma unroll 4
    for (int k = 0; k < queries; k += 16) {
      u32 one[4], two[4];
      Ldm4T(one, shares + at + k * kRow);
      Ldm4T(two, d_shares + at + k * kRow);
      AddStep<P>(d_value, one, d_out + k * STRIDE(P));
      AddStep<P>(d_key, two, q + k * STRIDE(P));
    }
    Elem* to = a.d_qkv + a.first + head * a.size;
    StoreTile<P>(to + a.width, d_key, rows + own, a.stride, a.size, a.scale, a.scale);
    StoreTile<P>(to + 2 * a.width, d_value, rows + own, a.stride, a.size, 1.f, 1.f);
    if (MUTUAL) AddTimes<P>(sums[1], d_key, a.scale), AddTimes<P>(sums[2], d_value, 1.f);
  }

  __device__ __forceinline__ void StoreBias() const {
    int apart = 2 * a.depth - 1, warp = threadIdx.x >> 5;
    float* all = (float*)memory;  // [warps, FRAMES, 18, 32]
#pragma unroll
    for (int f = 0; f < FRAMES; ++f) {
#pragma unroll
      for (int i = 0; i < 18; ++i) all[((warp * FRAMES + f) * 18 + i) * 32 + lane] = bias[f][i >> 1][i & 1];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < apart * 225; i += blockDim.x) {
      int index = i / 225, dh = i % 225 / 15 - 7, dw = i % 15 - 7;
      float total = 0.f;
      for (int q = 0; q < a.depth; ++q) {
        int key = q - index + a.depth - 1;
        if (key < 0 || key >= FRAMES) continue;
        for (int r = 0; r < 4; ++r) {
          int j = dh - 2 * r + 7;
          if (j < 0 || j > 8) continue;
          for (int w = max(0, -dw); w < min(8, 8 - dw); ++w) {
            total += all[(((q * 4 + r) * FRAMES + key) * 18 + 2 * j + (w & 1)) * 32 + (w + dw) * 4 + (w >> 1)];
          }
        }
      }
      a.d_bias[((i64)blockIdx.x * a.heads + head) * apart * 225 + i] = total;
    }
  }

  __device__ __forceinline__ void StorePlaces(float* places) const {
    float* to = places + ((i64)(2 * blockIdx.x + frame) * 64 + tile * 16 + g) * 3 * a.width + head * a.size;
#pragma unroll
    for (int which = 0; which < (MUTUAL ? 3 : 1); ++which) {
#pragma unroll
      for (int n = 0; n < P / 8; ++n) {
        int c = n * 8 + 2 * t;
        if (c >= a.size) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) to[(8 * (i >> 1) * 3 + which) * a.width + c + (i & 1)] = sums[which][n][i];
      }
    }
  }
};

template <int P, int FRAMES, bool MUTUAL>
__device__ __forceinline__ void Shallow(const Attention& a, float* places) {
  ShallowBlock<P, FRAMES, MUTUAL> block(a);
  for (int window = blockIdx.x; window < a.windows; window += gridDim.x) {
    Window o = WindowOf(a, window);
    block.Fetch(o);
    {
      u32 p[FRAMES][8][2];
      block.Attend(o, p);
      block.Queries(p);
    }
    __syncthreads();
    block.Keys();
    __syncthreads();
  }
  if (MUTUAL) {
    block.StorePlaces(places);
  } else {
    block.StoreBias();
  }
}

extern "C" {
#define SHALLOW(P)                                                                                                    \
  __global__ void __launch_bounds__(128, 4) one_frame_##P(Attention a, float*) { Shallow<P, 1, false>(a, 0); }        \
  __global__ void __launch_bounds__(256, 2) two_frames_##P(Attention a, float*) { Shallow<P, 2, false>(a, 0); }       \
  __global__ void __launch_bounds__(256, 2) mutual_##P(Attention a, float* places) { Shallow<P, 1, true>(a, places); }
SHALLOW(16)
SHALLOW(24)
SHALLOW(32)
}
)cuda";

}  // namespace lockstep::models::vrt::kernels
