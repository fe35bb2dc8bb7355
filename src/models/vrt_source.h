// The CUDA source of vrt_kernels.cc for attention, for NVRTC (cuda/kernel_source.h says what stands before it). Elem is
// a half type. A block has one head of one window; the frames of the window, 64 tokens of 8 x 8 each, lie in shared
// memory, and its warps go through tiles of 16 rows without waiting for each other. Tokens are read and written where
// they lie in the clip, rolled or not; nothing is gathered before. Logits are kept in units of log2. Sums have a fixed
// order.
#pragma once

namespace lockstep::models::vrt::kernels {

inline constexpr char kAttentionSource[] = R"cuda(
struct Attention {
  const Elem* qkv;   // [tokens, stride]: queries, keys, values of all heads from column `first` on
  const Elem* code;  // [64, 3 * width] added to them, or null
  const float* bias; // [heads, 2 * depth - 1, 225] in units of log2, or null
  Elem* out;         // [tokens, out_stride], from column `out_first` on
  float* lse;        // [tokens, lse_stride], heads from column `lse_first` on
  const Elem* d_out;
  const float* delta;  // as lse
  Elem* d_qkv;         // as qkv
  float* d_bias;       // [splits, heads, 2 * depth - 1, 225]
  int stride, first, width, heads, size, out_stride, out_first, lse_stride, lse_first;
  int frames, rows, columns;  // of a clip, multiples of the window's
  int depth;                  // frames of a window
  int shift_d, shift_h, shift_w, windows;
  float scale;
};

#define NEGATIVE -1e30f
#define LOG2E 1.4426950408889634f
// Of rows in shared memory: eight rows of 16 bytes lie in different banks.
#define STRIDE(P) ((P) <= 24 ? 24 : 40)

extern __shared__ __align__(16) unsigned char memory[];

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ u32 AddPair(u32 a, u32 b) {
  return Down(Up(a & 0xffff) + Up(b & 0xffff), Up(a >> 16) + Up(b >> 16));
}

// A window of a clip, and where the parts of a rolled axis meet in it: its length where they don't.
struct Window {
  int clip, d, h, w, cut_d, cut_h, cut_w;
};

__device__ __forceinline__ Window WindowOf(const Attention& a, int index) {
  int nw = a.columns / 8, nh = a.rows / 8, nd = a.frames / a.depth;
  Window o;
  int w = index % nw, h = index / nw % nh, d = index / (nw * nh) % nd;
  o.clip = index / (nw * nh * nd);
  o.w = w * 8, o.h = h * 8, o.d = d * a.depth;
  o.cut_w = a.shift_w && w == nw - 1 ? 8 - a.shift_w : 8;
  o.cut_h = a.shift_h && h == nh - 1 ? 8 - a.shift_h : 8;
  o.cut_d = a.shift_d && d == nd - 1 ? a.depth - a.shift_d : a.depth;
  return o;
}

// Token 64 * frame + 8 * row + column of the window: its row in the clip's tokens.
__device__ __forceinline__ int RowOf(const Attention& a, const Window& o, int token) {
  int d = o.d + token / 64 + a.shift_d, h = o.h + token / 8 % 8 + a.shift_h, w = o.w + token % 8 + a.shift_w;
  d -= d >= a.frames ? a.frames : 0, h -= h >= a.rows ? a.rows : 0, w -= w >= a.columns ? a.columns : 0;
  return ((o.clip * a.frames + d) * a.rows + h) * a.columns + w;
}

// All rows of a window into shared memory, zeros up to P. Asynchronous where nothing is added: Arrived() waits.
template <int P>
__device__ __forceinline__ void LoadWindow(Elem* to, const Elem* from, const int* rows, int count, int stride, int size,
                                           const Elem* code, int code_stride) {
  constexpr int kQuads = P / 4;
  if ((size & 3) == 0) {
    for (int i = threadIdx.x; i < count * kQuads; i += blockDim.x) {
      int r = i / kQuads, c = i % kQuads * 4;
      Elem* at = to + r * STRIDE(P) + c;
      if (c >= size) {
        *(uint2*)at = make_uint2(0, 0);
      } else if (code) {
        uint2 v = *(const uint2*)(from + (i64)rows[r] * stride + c), m = *(const uint2*)(code + (r & 63) * code_stride + c);
        *(uint2*)at = make_uint2(AddPair(v.x, m.x), AddPair(v.y, m.y));
      } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((u32)__cvta_generic_to_shared(at)),
                     "l"(from + (i64)rows[r] * stride + c));
      }
    }
  } else {
    for (int i = threadIdx.x; i < count * 2 * kQuads; i += blockDim.x) {
      int r = i / (2 * kQuads), c = i % (2 * kQuads) * 2;
      u32 v = 0;
      if (c < size) {
        v = *(const u32*)(from + (i64)rows[r] * stride + c);
        if (code) v = AddPair(v, *(const u32*)(code + (r & 63) * code_stride + c));
      }
      *(u32*)(to + r * STRIDE(P) + c) = v;
    }
  }
}

__device__ __forceinline__ void Arrived() {
  asm volatile("cp.async.commit_group;");
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
}

// 16 rows as the first operand of products over their elements.
template <int P>
struct Operand {
  u32 k16[P / 16][4];
  u32 k8[2];  // the last eight elements, where P has them
  __device__ __forceinline__ void Load(const Elem* rows) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int k = 0; k < P / 16; ++k) Ldm4(k16[k], rows + (lane & 15) * STRIDE(P) + k * 16 + (lane >> 4) * 8);
    if (P % 16) Ldm2(k8[0], k8[1], rows + (lane & 15) * STRIDE(P) + P / 16 * 16);
  }
};

// s[16 rows, 64] = a frame'.
template <int P>
__device__ __forceinline__ void Scores(float (&s)[8][4], const Operand<P>& a, const Elem* frame) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int n = 0; n < 8; n += 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = s[n + 1][i] = 0.f;
#pragma unroll
    for (int k = 0; k < P / 16; ++k) {
      u32 b[4];
      Ldm4(b, frame + ((n + (lane >> 4)) * 8 + (lane & 7)) * STRIDE(P) + k * 16 + (lane >> 3 & 1) * 8);
      Mma(s[n], a.k16[k], b[0], b[1]);
      Mma(s[n + 1], a.k16[k], b[2], b[3]);
    }
  }
  if (P % 16) {
#pragma unroll
    for (int n = 0; n < 8; n += 4) {
      u32 b[4];
      Ldm4(b, frame + ((n + (lane >> 3)) * 8 + (lane & 7)) * STRIDE(P) + P / 16 * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) Mma8(s[n + i], a.k8, b[i]);
    }
  }
}

// sum[16 rows, P] += p[16 rows, 64] frame[64, P].
template <int P>
__device__ __forceinline__ void AddProduct(float (&sum)[P / 8][4], const float (&p)[8][4], const Elem* frame) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    u32 a[4] = {Down(p[2 * k][0], p[2 * k][1]), Down(p[2 * k][2], p[2 * k][3]),
                Down(p[2 * k + 1][0], p[2 * k + 1][1]), Down(p[2 * k + 1][2], p[2 * k + 1][3])};
    const Elem* rows = frame + (k * 16 + (lane & 15)) * STRIDE(P);
#pragma unroll
    for (int n = 0; n + 1 < P / 8; n += 2) {
      u32 b[4];
      Ldm4T(b, rows + (n + (lane >> 4)) * 8);
      Mma(sum[n], a, b[0], b[1]);
      Mma(sum[n + 1], a, b[2], b[3]);
    }
    if (P / 8 % 2) {
      u32 b0, b1;
      Ldm2T(b0, b1, rows + P - 8);
      Mma(sum[P / 8 - 1], a, b0, b1);
    }
  }
}

// Logits of queries (the rows, or the columns where TRANSPOSED) and keys of one frame each: scaled, with bias and mask.
// `tile` is which 16 of 64 the rows are; `apart`: the frames are neighbours only because the clip was rolled.
template <bool BIAS, bool TRANSPOSED>
__device__ __forceinline__ void Finish(float (&s)[8][4], const float* bias, int tile, const Window& o, bool apart,
                                       float scale) {
  int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  bool whole = o.cut_h == 8 && o.cut_w == 8 && !apart;
  if (BIAS) bias += 112 + (TRANSPOSED ? -1 : 1) * (2 * tile * 15 + g - 2 * t);
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int e = i >> 1, c = i & 1;
      s[n][i] = BIAS ? fmaf(s[n][i], scale, bias[(TRANSPOSED ? -1 : 1) * ((e - n) * 15 - c)]) : s[n][i] * scale;
    }
  }
  if (whole) return;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int hi = 2 * tile + (i >> 1), wj = 2 * t + (i & 1);
      bool other = apart || (hi >= o.cut_h) != (n >= o.cut_h) || (g >= o.cut_w) != (wj >= o.cut_w);
      s[n][i] += other ? -100.f * LOG2E : 0.f;
    }
  }
}

__device__ __forceinline__ void LoadBias(float* to, const Attention& a, int head) {
  int count = (2 * a.depth - 1) * 225;
  for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = a.bias[(i64)head * count + i];
}

template <int P>
__device__ __forceinline__ void StoreTile(Elem* to, const float (&x)[P / 8][4], const int* rows, int stride, int size,
                                          float factor0, float factor1) {
  int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  Elem *first = to + (i64)rows[g] * stride, *second = to + (i64)rows[g + 8] * stride;
#pragma unroll
  for (int n = 0; n < P / 8; ++n) {
    int c = n * 8 + 2 * t;
    if (c >= size) continue;
    *(u32*)(first + c) = Down(x[n][0] * factor0, x[n][1] * factor0);
    *(u32*)(second + c) = Down(x[n][2] * factor1, x[n][3] * factor1);
  }
}

// Shared memory of a block: `tensors` windows of rows, the bias, rows of the clip, two numbers a token.
template <int P>
struct Shared {
  Elem* tensor[4];
  float *bias, *lse, *delta;
  int* rows;
  __device__ __forceinline__ Shared(const Attention& a, int tensors) {
    int tokens = 64 * a.depth;
    Elem* at = (Elem*)memory;
#pragma unroll
    for (int i = 0; i < 4; ++i) tensor[i] = at + (i64)min(i, tensors) * tokens * STRIDE(P);
    bias = (float*)(at + (i64)tensors * tokens * STRIDE(P));
    rows = (int*)(bias + (2 * a.depth - 1) * 225 + 1);  // an even number before: lse is read in pairs
    lse = (float*)(rows + tokens), delta = lse + tokens;
  }
};

// Logits become shares of what lies at most[] and is summed in total[] and sum[] so far; those move along.
template <int P>
__device__ __forceinline__ void Soften(float (&s)[8][4], float (&most)[2], float (&total)[2], float (&sum)[P / 8][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = most[r];
#pragma unroll
    for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    float less = Exp2(most[r] - top), here = 0.f;
    most[r] = top;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      s[n][2 * r] = Exp2(s[n][2 * r] - top), s[n][2 * r + 1] = Exp2(s[n][2 * r + 1] - top);
      here += s[n][2 * r] + s[n][2 * r + 1];
    }
    total[r] = total[r] * less + here;
#pragma unroll
    for (int n = 0; n < P / 8; ++n) sum[n][2 * r] *= less, sum[n][2 * r + 1] *= less;
  }
}

__device__ __forceinline__ void Total(float (&total)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
  }
}

// Mutual: frame f is made from the other frame's queries and its own keys and values; frames that are neighbours only
// because the clip was rolled are no exception, as upstream has it.
template <int P, bool MUTUAL>
__device__ __forceinline__ void Forward(const Attention& a) {
  Shared<P> m(a, 3);
  int head = blockIdx.y, tokens = 64 * a.depth, lane = threadIdx.x & 31;
  Window o = WindowOf(a, blockIdx.x);
  const Elem* from = a.qkv + a.first + head * a.size;
  const Elem* code = a.code ? a.code + head * a.size : 0;
  for (int i = threadIdx.x; i < tokens; i += blockDim.x) m.rows[i] = RowOf(a, o, i);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    LoadWindow<P>(m.tensor[i], from + i * a.width, m.rows, tokens, a.stride, a.size, code ? code + i * a.width : 0,
                  3 * a.width);
  }
  if (!MUTUAL) LoadBias(m.bias, a, head);
  Arrived();
  for (int tile = threadIdx.x >> 5; tile < 4 * a.depth; tile += blockDim.x >> 5) {
    int f = tile >> 2, query = MUTUAL ? 1 - f : f;
    Operand<P> q;
    q.Load(m.tensor[0] + (query * 64 + (tile & 3) * 16) * STRIDE(P));
    float sum[P / 8][4] = {}, most[2] = {NEGATIVE, NEGATIVE}, total[2] = {0.f, 0.f};
    for (int key = MUTUAL ? f : 0; key < (MUTUAL ? f + 1 : a.depth); ++key) {
      float s[8][4];
      Scores<P>(s, q, m.tensor[1] + key * 64 * STRIDE(P));
      Finish<!MUTUAL, false>(s, m.bias + (query - key + a.depth - 1) * 225, tile & 3, o,
                             !MUTUAL && (query >= o.cut_d) != (key >= o.cut_d), a.scale * LOG2E);
      Soften<P>(s, most, total, sum);
      AddProduct<P>(sum, s, m.tensor[2] + key * 64 * STRIDE(P));
    }
    Total(total);
    const int* rows = m.rows + tile * 16;
    StoreTile<P>(a.out + a.out_first + head * a.size, sum, rows, a.out_stride, a.size, 1.f / total[0], 1.f / total[1]);
    if ((lane & 3) == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        a.lse[(i64)rows[(lane >> 2) + 8 * r] * a.lse_stride + a.lse_first + head] = most[r] + __log2f(total[r]);
      }
    }
  }
}

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

template <int P, bool MUTUAL>
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

// The gradient of the bias, summed over windows blockIdx.x, + gridDim.x, ... A warp has one tile of a frame (four) and
// SLOTS differences between frames; rows of its tile and of keys that are as far apart share a sum.
template <int P, int SLOTS>
__device__ __forceinline__ void BackwardBias(const Attention& a) {
  Shared<P> m(a, 4);
  int head = blockIdx.y, lane = threadIdx.x & 31, g = lane >> 2, warp = threadIdx.x >> 5;
  int tile = warp & 3, group = warp >> 2, groups = blockDim.x >> 7, apart = 2 * a.depth - 1;
  float sum[SLOTS][9][2] = {};
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
            sum[slot][(i >> 1) - n + 7][i & 1] += Exp2(s[n][i] - lse[i >> 1]) * (d[n][i] - delta[i >> 1]);
          }
        }
      }
    }
  }
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
      a.d_bias[(((i64)blockIdx.x * a.heads + head) * apart + index) * 225 + i % 225] = total;
    }
  }
}

extern "C" {
#define KERNELS(P)                                                                                           \
  __global__ void __launch_bounds__(256, 3) forward_##P(Attention a) { Forward<P, false>(a); }               \
  __global__ void __launch_bounds__(256, 3) forward_mutual_##P(Attention a) { Forward<P, true>(a); }         \
  __global__ void __launch_bounds__(256, 2) backward_##P(Attention a) { Backward<P, false>(a); }             \
  __global__ void __launch_bounds__(256, 3) backward_mutual_##P(Attention a) { Backward<P, true>(a); }       \
  __global__ void __launch_bounds__(384, 1) bias_##P(Attention a) { BackwardBias<P, 4>(a); }                 \
  __global__ void __launch_bounds__(384, 1) bias_deep_##P(Attention a) { BackwardBias<P, 5>(a); }
KERNELS(16)
KERNELS(24)
KERNELS(32)

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
