// The CUDA source of vrt_kernels.cc for attention of a forward pass that keeps nothing; it stands behind that of
// vrt_source.h. A block of threads has one window of frames or several: their tokens' norms lie in shared memory, and
// for one head after the other queries (in registers), keys and values come from them and the weights, which are copied
// two heads ahead. While half of the warps attend, the others make what the next head needs.
#pragma once

namespace lockstep::models::vrt::kernels {

inline constexpr char kWindowSource[] = R"cuda(
struct Block {
  Attention a;             // without qkv; `code` null: no mutual part
  const Elem *x, *weight;  // [tokens, width], [3 (mutual: 6) * width, width]
  const float *norm, *norm_bias;
  const Elem* qkv_bias;  // or null
  float epsilon;
  int windows;  // of a block of threads
};

// Rows of C elements whose eighths lie in different banks.
#define WIDE(C) ((C) % 16 ? (C) : (C) + 8)

template <int C, int P>
struct WindowBlock {
  static constexpr int kRow = WIDE(C), kTiles = 3 * P / 8;
  const Block& b;
  const Attention& a;
  Elem *normed, *weights, *kv;
  float* bias;
  int* rows;
  int tokens, tile, lane, g, t;  // of this warp's window
  Window o;
  bool on;

  __device__ __forceinline__ explicit WindowBlock(const Block& block) : b(block), a(block.a) {
    int all = 64 * a.depth * b.windows, warp = threadIdx.x >> 5, own = warp / (4 * a.depth);
    tokens = 64 * a.depth, tile = warp - own * 4 * a.depth;
    lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    normed = (Elem*)memory, weights = normed + all * kRow, kv = weights + 2 * 3 * P * kRow;
    bias = (float*)(kv + 4 * all * STRIDE(P)), rows = (int*)(bias + 2 * Count());
    int index = blockIdx.x * b.windows + own;
    on = index < a.windows;
    o = WindowOf(a, min(index, a.windows - 1));
    for (int i = tile * 16 + lane; i < tile * 16 + 16; i += 32) rows[own * tokens + i] = RowOf(a, o, i);
    __syncwarp();
    // From here on all of it is this window's.
    normed += own * tokens * kRow, kv += own * tokens * STRIDE(P), rows += own * tokens;
  }
  __device__ __forceinline__ int Count() const { return (2 * a.depth - 1) * 225 + 1; }
  // Keys (0) or values (1) of an item.
  __device__ __forceinline__ Elem* Of(int item, int which) const {
    return kv + (2 * (item & 1) + which) * tokens * b.windows * STRIDE(P);
  }

  // The norms of this warp's tile.
  __device__ __forceinline__ void Norm() const {
    constexpr int kQuads = C / 4;
    bool in = lane < kQuads;
    float4 w = in ? ((const float4*)b.norm)[lane] : make_float4(0.f, 0.f, 0.f, 0.f);
    float4 p = in ? ((const float4*)b.norm_bias)[lane] : make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
    for (int i = tile * 16; i < tile * 16 + 16; ++i) {
      uint2 v = in ? ((const uint2*)(b.x + (i64)rows[i] * C))[lane] : make_uint2(0, 0);
      float x0 = Up(v.x & 0xffff), x1 = Up(v.x >> 16), x2 = Up(v.y & 0xffff), x3 = Up(v.y >> 16);
      float sum = (x0 + x1) + (x2 + x3), square = 0.f;
#pragma unroll
      for (int step = 16; step > 0; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
      float mean = sum / C;
      x0 -= mean, x1 -= mean, x2 -= mean, x3 -= mean;
      if (in) square = (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3);
#pragma unroll
      for (int step = 16; step > 0; step >>= 1) square += __shfl_xor_sync(0xffffffffu, square, step);
      float inverse = rsqrtf(square / C + b.epsilon);
      if (!in) continue;
      *(uint2*)(normed + i * kRow + 4 * lane) = make_uint2(Down(x0 * inverse * w.x + p.x, x1 * inverse * w.y + p.y),
                                                          Down(x2 * inverse * w.z + p.z, x3 * inverse * w.w + p.w));
    }
  }

  __device__ __forceinline__ void FetchWeights(int item) const {
    constexpr int kPieces = C / 8;
    int part = item / a.heads, head = item - part * a.heads;
    const Elem* from = b.weight + (i64)(part * 3 * C + head * a.size) * C;
    Elem* to = weights + (item & 1) * 3 * P * kRow;
    for (int i = threadIdx.x; i < 3 * a.size * kPieces; i += blockDim.x) {
      int r = i / kPieces, c = (i - r * kPieces) * 8, which = r / a.size, row = r - which * a.size;
      CopyAsync16(to + (which * P + row) * kRow + c, from + (i64)(which * C + row) * C + c);
    }
  }
  __device__ __forceinline__ void FetchBias(int item) const {
    if (item >= a.heads) return;
    int count = (2 * a.depth - 1) * 225;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
      CopyAsync4(bias + (item & 1) * Count() + i, a.bias + (i64)item * count + i);
    }
  }

  // Queries of the tile; its keys and values go to shared memory.
  __device__ __forceinline__ void Make(int item, Operand<P>& q) const {
    int part = item / a.heads, head = item - part * a.heads;
    const Elem* w = weights + (item & 1) * 3 * P * kRow;
    const Elem* x = normed + (tile * 16 + (lane & 15)) * kRow;
    float s[kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      int which = n / (P / 8), c = (n - which * (P / 8)) * 8 + 2 * t;
      u32 v = 0;
      if (b.qkv_bias && c < a.size) v = *(const u32*)(b.qkv_bias + (part * 3 + which) * C + head * a.size + c);
      s[n][0] = s[n][2] = Up(v & 0xffff), s[n][1] = s[n][3] = Up(v >> 16);
    }
#pragma unroll 2
    for (int k = 0; k < C / 16; ++k) {
      u32 m[4];
      Ldm4(m, x + k * 16 + (lane >> 4) * 8);
#pragma unroll
      for (int n = 0; n + 1 < kTiles; n += 2) {
        u32 r[4];
        Ldm4(r, w + ((n + (lane >> 4)) * 8 + (lane & 7)) * kRow + k * 16 + (lane >> 3 & 1) * 8);
        Mma(s[n], m, r[0], r[1]);
        Mma(s[n + 1], m, r[2], r[3]);
      }
      if (kTiles % 2) {
        u32 r0, r1;
        Ldm2(r0, r1, w + ((kTiles - 1) * 8 + (lane & 7)) * kRow + k * 16 + (lane >> 3 & 1) * 8);
        Mma(s[kTiles - 1], m, r0, r1);
      }
    }
    if (C % 16) {
      u32 m[2];
      Ldm2(m[0], m[1], x + C / 16 * 16);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        u32 r0, r1;
        Ldm2(r0, r1, w + ((n + (n + 1 < kTiles ? lane >> 3 & 1 : 0)) * 8 + (lane & 7)) * kRow + C / 16 * 16);
        Mma8(s[n], m, r0);
        if (++n < kTiles) Mma8(s[n], m, r1);
      }
    }
    if (part) {
      const Elem* code = a.code + (i64)((tile * 16 + g) & 63) * 3 * C + head * a.size;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        int which = n / (P / 8), c = (n - which * (P / 8)) * 8 + 2 * t;
        if (c >= a.size) continue;
        u32 one = *(const u32*)(code + which * C + c), two = *(const u32*)(code + 8 * 3 * C + which * C + c);
        s[n][0] += Up(one & 0xffff), s[n][1] += Up(one >> 16), s[n][2] += Up(two & 0xffff), s[n][3] += Up(two >> 16);
      }
    }
#pragma unroll
    for (int k = 0; k < P / 16; ++k) {
      q.k16[k][0] = Down(s[2 * k][0], s[2 * k][1]), q.k16[k][1] = Down(s[2 * k][2], s[2 * k][3]);
      q.k16[k][2] = Down(s[2 * k + 1][0], s[2 * k + 1][1]), q.k16[k][3] = Down(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
    if (P % 16) q.k8[0] = Down(s[P / 8 - 1][0], s[P / 8 - 1][1]), q.k8[1] = Down(s[P / 8 - 1][2], s[P / 8 - 1][3]);
#pragma unroll
    for (int n = P / 8; n < kTiles; ++n) {
      int which = n / (P / 8) - 1, c = (n - (which + 1) * (P / 8)) * 8 + 2 * t;
      Elem* to = Of(item, which) + (tile * 16 + g) * STRIDE(P) + c;
      *(u32*)to = Down(s[n][0], s[n][1]);
      *(u32*)(to + 8 * STRIDE(P)) = Down(s[n][2], s[n][3]);
    }
  }

  template <bool MUTUAL>
  __device__ __forceinline__ void Attend(int item, const Operand<P>& q) const {
    int head = MUTUAL ? item - a.heads : item, query = tile >> 2, f = MUTUAL ? 1 - query : query;
    const Elem *keys = Of(item, 0), *values = Of(item, 1);
    float sum[P / 8][4] = {}, most[2] = {NEGATIVE, NEGATIVE}, total[2] = {0.f, 0.f};
    for (int key = MUTUAL ? f : 0; key < (MUTUAL ? f + 1 : a.depth); ++key) {
      float s[8][4];
      Scores<P>(s, q, keys + key * 64 * STRIDE(P));
      Finish<!MUTUAL, false>(s, bias + (item & 1) * Count() + (query - key + a.depth - 1) * 225, tile & 3, o,
                             !MUTUAL && (query >= o.cut_d) != (key >= o.cut_d), a.scale * LOG2E);
      Soften<P>(s, most, total, sum);
      AddProduct<P>(sum, s, values + key * 64 * STRIDE(P));
    }
    Total(total);
    if (!on) return;
    const int* own = rows + f * 64 + (tile & 3) * 16;
    bool second = !MUTUAL && a.code;
    StoreTile<P>(a.out + (second ? C : 0) + head * a.size, sum, own, a.out_stride, a.size, 1.f / total[0],
                 1.f / total[1]);
    if (!a.lse || t != 0) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      a.lse[(i64)own[g + 8 * r] * a.lse_stride + (second ? a.heads : 0) + head] = most[r] + __log2f(total[r]);
    }
  }
};

template <int C, int P>
__device__ __forceinline__ void WindowForward(const Block& b) {
  WindowBlock<C, P> block(b);
  const Attention& a = b.a;
  int items = a.heads * (a.code ? 2 : 1), odd = threadIdx.x >> 5 & 1;
  block.FetchWeights(0);
  block.FetchWeights(1);
  block.FetchBias(0);
  for (int i = threadIdx.x; a.size < P && i < 6 * (P - a.size) * WIDE(C); i += blockDim.x) {  // rows behind a head's
    int r = i / WIDE(C);
    block.weights[(r / (P - a.size) * P + a.size + r % (P - a.size)) * WIDE(C) + i % WIDE(C)] = 0;
  }
  block.Norm();
  Arrived();
  Operand<P> now, next;
  block.Make(0, next);
  for (int item = 0; item < items; ++item) {
    now = next;
    Arrived();
    if (item + 2 < items) block.FetchWeights(item + 2);
    if (item + 1 < items) block.FetchBias(item + 1);
#pragma unroll 1
    for (int phase = 0; phase < 2; ++phase) {
      if (phase == odd) {
        if (item + 1 < items) block.Make(item + 1, next);
      } else if (item < a.heads) {
        block.template Attend<false>(item, now);
      } else {
        block.template Attend<true>(item, now);
      }
    }
  }
}

extern "C" {
__global__ void __launch_bounds__(768, 1) window_96(Block b) { WindowForward<96, 16>(b); }
__global__ void __launch_bounds__(768, 1) window_120(Block b) { WindowForward<120, 24>(b); }
}
)cuda";

}  // namespace lockstep::models::vrt::kernels
