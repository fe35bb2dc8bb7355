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

// Bytes to shared memory; Arrived() waits for them.
__device__ __forceinline__ void CopyAsync16(Elem* to, const Elem* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}
__device__ __forceinline__ void CopyAsync8(Elem* to, const Elem* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}
__device__ __forceinline__ void CopyAsync4(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
}

// All rows of a window into shared memory, zeros up to P. Asynchronous where nothing is added: Arrived() waits.
template <int P>
__device__ __forceinline__ void LoadWindow(Elem* to, const Elem* from, const int* rows, int count, int stride, int size,
                                           const Elem* code, int code_stride) {
  constexpr int kQuads = P / 4;
  if (size == P && P % 8 == 0 && !code) {
    for (int i = threadIdx.x; i < count * (P / 8); i += blockDim.x) {
      int r = i / (P / 8), c = i % (P / 8) * 8;
      CopyAsync16(to + r * STRIDE(P) + c, from + (i64)rows[r] * stride + c);
    }
  } else if ((size & 3) == 0) {
    for (int i = threadIdx.x; i < count * kQuads; i += blockDim.x) {
      int r = i / kQuads, c = i % kQuads * 4;
      Elem* at = to + r * STRIDE(P) + c;
      if (c >= size) {
        *(uint2*)at = make_uint2(0, 0);
      } else if (code) {
        uint2 v = *(const uint2*)(from + (i64)rows[r] * stride + c), m = *(const uint2*)(code + (r & 63) * code_stride + c);
        *(uint2*)at = make_uint2(AddPair(v.x, m.x), AddPair(v.y, m.y));
      } else {
        CopyAsync8(at, from + (i64)rows[r] * stride + c);
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

// s[16 rows, 8 * N] = a frame', of the frame's first tokens.
template <int P, int N>
__device__ __forceinline__ void Scores(float (&s)[N][4], const Operand<P>& a, const Elem* frame) {
  int lane = threadIdx.x & 31;
#pragma unroll
  for (int n = 0; n < N; n += 2) {
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
  if (P % 16 && N == 2) {
    u32 b0, b1;
    Ldm2(b0, b1, frame + (lane & 15) * STRIDE(P) + P / 16 * 16);
    Mma8(s[0], a.k8, b0);
    Mma8(s[1], a.k8, b1);
  } else if (P % 16) {
#pragma unroll
    for (int n = 0; n < N; n += 4) {
      u32 b[4];
      Ldm4(b, frame + ((n + (lane >> 3)) * 8 + (lane & 7)) * STRIDE(P) + P / 16 * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) Mma8(s[n + i], a.k8, b[i]);
    }
  }
}

// sum[16 rows, P] += a[16 rows, 16] rows[16, P].
template <int P>
__device__ __forceinline__ void AddStep(float (&sum)[P / 8][4], const u32 (&a)[4], const Elem* rows) {
  int lane = threadIdx.x & 31;
  rows += (lane & 15) * STRIDE(P);
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

// sum[16 rows, P] += p[16 rows, 8 * N] frame[8 * N, P].
template <int P, int N>
__device__ __forceinline__ void AddProduct(float (&sum)[P / 8][4], const float (&p)[N][4], const Elem* frame) {
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    u32 a[4] = {Down(p[2 * k][0], p[2 * k][1]), Down(p[2 * k][2], p[2 * k][3]),
                Down(p[2 * k + 1][0], p[2 * k + 1][1]), Down(p[2 * k + 1][2], p[2 * k + 1][3])};
    AddStep<P>(sum, a, frame + k * 16 * STRIDE(P));
  }
}

// A line of a frame, as a type.
template <int LINE>
struct Line {
  static constexpr int kLine = LINE;
};

// Logits of queries (the rows, or the columns where TRANSPOSED) and keys of one frame each: scaled, with bias and mask.
// `tile` is which 16 of 64 the rows are, FIRST the first line of the columns; `apart`: the frames are neighbours only
// because the clip was rolled.
template <bool BIAS, bool TRANSPOSED, int FIRST = 0, int N>
__device__ __forceinline__ void Finish(float (&s)[N][4], const float* bias, int tile, const Window& o, bool apart,
                                       float scale) {
  int g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
  bool whole = o.cut_h == 8 && o.cut_w == 8 && !apart;
  if (BIAS) bias += 112 + (TRANSPOSED ? -1 : 1) * (2 * tile * 15 + g - 2 * t);
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int e = i >> 1, c = i & 1;
      s[n][i] = BIAS ? fmaf(s[n][i], scale, bias[(TRANSPOSED ? -1 : 1) * ((e - n - FIRST) * 15 - c)]) : s[n][i] * scale;
    }
  }
  if (whole) return;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int hi = 2 * tile + (i >> 1), wj = 2 * t + (i & 1);
      bool other = apart || (hi >= o.cut_h) != (n + FIRST >= o.cut_h) || (g >= o.cut_w) != (wj >= o.cut_w);
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

extern "C" {
#define FORWARD(P)                                                                             \
  __global__ void __launch_bounds__(256, 3) forward_##P(Attention a) { Forward<P, false>(a); } \
  __global__ void __launch_bounds__(256, 3) forward_mutual_##P(Attention a) { Forward<P, true>(a); }
FORWARD(16)
FORWARD(24)
FORWARD(32)
}
)cuda";

}  // namespace lockstep::models::vrt::kernels
