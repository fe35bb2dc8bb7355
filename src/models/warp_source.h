// The CUDA source of warp_kernels.cc, for NVRTC (cuda/kernel_source.h says what stands before it). Frames are [n, h, w,
// c] of Elem, places and sums are float. What a kernel scatters into a frame is added by atomics: in float, in an order
// that varies, or, where the caller wants the same bits every time, in 64-bit fixed point. The kernels use neither
// shared memory nor barriers; sums over the lanes of a warp are shuffles.
#pragma once

namespace lockstep::models::warp {

inline constexpr char kSource[] = R"cuda(
typedef unsigned long long u64;

template <int V>
struct Some { float v[V]; };

__device__ __forceinline__ Some<1> Read1(const Elem* p) { return {{One(p)}}; }
#if KIND == 0
__device__ __forceinline__ Some<2> Read2(const float* p) {
  float2 a = *(const float2*)p;
  return {{a.x, a.y}};
}
__device__ __forceinline__ Some<4> Read4(const float* p) {
  float4 a = *(const float4*)p;
  return {{a.x, a.y, a.z, a.w}};
}
__device__ __forceinline__ void Write2(float* p, const Some<2>& s) { *(float2*)p = make_float2(s.v[0], s.v[1]); }
__device__ __forceinline__ void Write4(float* p, const Some<4>& s) {
  *(float4*)p = make_float4(s.v[0], s.v[1], s.v[2], s.v[3]);
}
#else
__device__ __forceinline__ Some<2> Read2(const u16* p) {
  u32 a = *(const u32*)p;
  return {{Up(a & 0xffff), Up(a >> 16)}};
}
__device__ __forceinline__ Some<4> Read4(const u16* p) {
  uint2 a = *(const uint2*)p;
  return {{Up(a.x & 0xffff), Up(a.x >> 16), Up(a.y & 0xffff), Up(a.y >> 16)}};
}
__device__ __forceinline__ void Write2(u16* p, const Some<2>& s) { *(u32*)p = Down(s.v[0], s.v[1]); }
__device__ __forceinline__ void Write4(u16* p, const Some<4>& s) {
  *(uint2*)p = make_uint2(Down(s.v[0], s.v[1]), Down(s.v[2], s.v[3]));
}
#endif

// V neighbouring channels at a time; p is aligned to them.
template <int V>
__device__ __forceinline__ Some<V> Read(const Elem* p) {
  if constexpr (V == 1) return Read1(p);
  else if constexpr (V == 2) return Read2(p);
  else if constexpr (V == 4) return Read4(p);
  else {
    F8 f = Load(p);
    return {{f.v[0], f.v[1], f.v[2], f.v[3], f.v[4], f.v[5], f.v[6], f.v[7]}};
  }
}
template <int V>
__device__ __forceinline__ void Write(Elem* p, const Some<V>& s) {
  if constexpr (V == 1) SetOne(p, s.v[0]);
  else if constexpr (V == 2) Write2(p, s);
  else if constexpr (V == 4) Write4(p, s);
  else Store(p, F8{{s.v[0], s.v[1], s.v[2], s.v[3], s.v[4], s.v[5], s.v[6], s.v[7]}});
}
template <int V>
__device__ __forceinline__ Some<V> Nothing() {
  Some<V> s;
#pragma unroll
  for (int i = 0; i < V; ++i) s.v[i] = 0.f;
  return s;
}

// Where gradients of frames are added: `sums`, or, where `fixed` is not null, fixed-point numbers of *scale to one.
struct Into { float* sums; u64* fixed; const float* scale; };
__device__ __forceinline__ bool Wanted(const Into& into) { return into.sums != nullptr || into.fixed != nullptr; }

template <int V>
__device__ __forceinline__ void Add(const Into& into, float scale, i64 at, float weight, const Some<V>& s) {
  if (into.fixed) {
#pragma unroll
    for (int i = 0; i < V; ++i) atomicAdd(into.fixed + at + i, (u64)__float2ll_rn(weight * s.v[i] * scale));
    return;
  }
  float* p = into.sums + at;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (V == 1) {
    atomicAdd(p, weight * s.v[0]);
  } else if constexpr (V == 2) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" : : "l"(p), "f"(weight * s.v[0]), "f"(weight * s.v[1]));
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4)
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                   : : "l"(p + i), "f"(weight * s.v[i]), "f"(weight * s.v[i + 1]), "f"(weight * s.v[i + 2]),
                       "f"(weight * s.v[i + 3]));
  }
#else
#pragma unroll
  for (int i = 0; i < V; ++i) atomicAdd(p + i, weight * s.v[i]);
#endif
}

// As BilinearPlace of bilinear.h: the four pixels around (x, y), -1 outside; all of them for a point no pixel is near.
struct Place { int row[4]; float wx, wy; };
__device__ __forceinline__ Place PlaceOf(float x, float y, int height, int width) {
  bool near = x > -1.f && x < (float)width && y > -1.f && y < (float)height;
  float left = near ? floorf(x) : 0.f, top = near ? floorf(y) : 0.f;
  Place p;
  p.wx = near ? x - left : 0.f, p.wy = near ? y - top : 0.f;
  int x0 = (int)left, y0 = (int)top;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int xk = x0 + (k & 1), yk = y0 + (k >> 1);
    p.row[k] = near && xk >= 0 && xk < width && yk >= 0 && yk < height ? yk * width + xk : -1;
  }
  return p;
}
__device__ __forceinline__ float Share(const Place& p, int k) {
  return ((k & 1) ? p.wx : 1.f - p.wx) * ((k >> 1) ? p.wy : 1.f - p.wy);
}
// Derivatives of the sampled value along x and y, from the product of each pixel with the gradient.
__device__ __forceinline__ float AlongX(const Place& p, const float (&a)[4]) {
  return (a[1] - a[0]) * (1.f - p.wy) + (a[3] - a[2]) * p.wy;
}
__device__ __forceinline__ float AlongY(const Place& p, const float (&a)[4]) {
  return (a[2] - a[0]) * (1.f - p.wx) + (a[3] - a[1]) * p.wx;
}
// Over `lanes` neighbouring lanes, a power of two.
__device__ __forceinline__ float LaneSum(float x, int lanes) {
  for (int step = lanes >> 1; step > 0; step >>= 1) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

// ---- Deformable convolution ----
// Pixels [first, first + count) of all frames. Columns are [weight group][pixel][tap][channel of the weight group].
// Offsets and masks come as they are (`offset`, `mask`), or as what a convolution gave (`raw`: [pixel][2 T offsets, T
// masks], T = groups * taps) and flows: offset = reach * tanh(raw) + flow, mask = sigmoid(raw). The flow of hop i is
// that of the i-th part of all T.
struct Taps {
  int height, width, channels, per_group, groups, taps, kernel, per_weight_group, hops, first, count;
  float reach;
  const Elem* frames;
  const float *offset, *mask;
  const Elem* raw;
  const float* flow[3];
};
struct Tap { float y, x, mask, tanh_y, tanh_x; };

__device__ __forceinline__ int HopOf(const Taps& t, int at) {
  return t.hops == 1 ? 0 : at / (t.groups * t.taps / t.hops);
}
__device__ __forceinline__ Tap TapOf(const Taps& t, int pixel, int at) {
  int all = t.groups * t.taps;
  Tap tap;
  if (t.raw) {
    const Elem* from = t.raw + (i64)pixel * 3 * all;
    int hop = HopOf(t, at);
    const float* flow = (hop == 0 ? t.flow[0] : hop == 1 ? t.flow[1] : t.flow[2]) + 2 * (i64)pixel;
    tap.tanh_y = tanhf(One(from + 2 * at)), tap.tanh_x = tanhf(One(from + 2 * at + 1));
    tap.y = t.reach * tap.tanh_y + flow[1], tap.x = t.reach * tap.tanh_x + flow[0];
    tap.mask = 1.f / (1.f + __expf(-One(from + 2 * all + at)));
  } else {
    i64 from = (i64)pixel * all + at;
    tap.y = t.offset[2 * from], tap.x = t.offset[2 * from + 1], tap.mask = t.mask[from];
    tap.tanh_y = tap.tanh_x = 0.f;
  }
  return tap;
}
struct Spot { Place place; i64 frame; };  // frame: where channel 0 of pixel 0 is
__device__ __forceinline__ Spot SpotOf(const Taps& t, const Tap& tap, int pixel, int number) {
  int area = t.height * t.width, image = pixel / area, p = pixel - image * area, i = p / t.width, j = p - i * t.width;
  int row = number / t.kernel, column = number - row * t.kernel, half = t.kernel / 2;
  return {PlaceOf((float)(j + column - half) + tap.x, (float)(i + row - half) + tap.y, t.height, t.width),
          (i64)image * area * t.channels};
}
__device__ __forceinline__ i64 ColumnOf(const Taps& t, int i, int tap, int c) {
  if (t.per_weight_group == t.channels) return ((i64)i * t.taps + tap) * t.channels + c;
  int group = c / t.per_weight_group;
  return (((i64)group * t.count + i) * t.taps + tap) * t.per_weight_group + (c - group * t.per_weight_group);
}

// A thread: all channels of one group of offsets, for a pixel and a tap. Groups are innermost: where they agree about
// the place, a warp reads and writes whole lines.
template <int V>
__device__ __forceinline__ void Sample(const Taps& t, Elem* __restrict__ columns) {
  u32 n = blockIdx.x * blockDim.x + threadIdx.x, each = (u32)(t.groups * t.taps), i = n / each;
  if (i >= (u32)t.count) return;
  int rest = (int)(n - i * each), number = rest / t.groups, group = rest - number * t.groups;
  int pixel = t.first + (int)i;
  Tap tap = TapOf(t, pixel, group * t.taps + number);
  Spot spot = SpotOf(t, tap, pixel, number);
  const Elem* __restrict__ frame = t.frames + spot.frame;
  float weight[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) weight[k] = Share(spot.place, k) * tap.mask;
#pragma unroll 3
  for (int c = group * t.per_group; c < (group + 1) * t.per_group; c += V) {
    Some<V> sum = Nothing<V>();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int row = spot.place.row[k];
      if (row < 0) continue;
      Some<V> x = Read<V>(frame + (i64)row * t.channels + c);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.v[v] += weight[k] * x.v[v];
    }
    Write<V>(columns + ColumnOf(t, (int)i, number, c), sum);
  }
}
extern "C" __global__ void deform_1(Taps t, Elem* columns) { Sample<1>(t, columns); }
extern "C" __global__ void deform_2(Taps t, Elem* columns) { Sample<2>(t, columns); }
extern "C" __global__ void deform_4(Taps t, Elem* columns) { Sample<4>(t, columns); }

struct TapGradients {
  float *offset, *mask;  // or
  Elem* raw;             // and
  float* flow[3];        // null: not wanted
  Into frames;
};
struct TapGradient { float x, y, mask; };
// Writes a tap's gradient; what belongs to its flow is added to the sums.
__device__ __forceinline__ void GiveTap(const Taps& t, const TapGradients& to, int pixel, int at, const Tap& tap,
                                        const TapGradient& d, float (&flow_x)[3], float (&flow_y)[3]) {
  int all = t.groups * t.taps;
  if (t.raw) {
    Elem* raw = to.raw + (i64)pixel * 3 * all;
    SetOne(raw + 2 * at, d.y * t.reach * (1.f - tap.tanh_y * tap.tanh_y));
    SetOne(raw + 2 * at + 1, d.x * t.reach * (1.f - tap.tanh_x * tap.tanh_x));
    SetOne(raw + 2 * all + at, d.mask * tap.mask * (1.f - tap.mask));
    int hop = HopOf(t, at);
#pragma unroll
    for (int h = 0; h < 3; ++h) flow_x[h] += hop == h ? d.x : 0.f, flow_y[h] += hop == h ? d.y : 0.f;
  } else {
    i64 where = (i64)pixel * all + at;
    to.offset[2 * where] = d.y, to.offset[2 * where + 1] = d.x, to.mask[where] = d.mask;
  }
}
// What the lanes of a warp have for the flows of its pixel.
__device__ __forceinline__ void GiveFlows(const Taps& t, const TapGradients& to, int pixel, const float (&flow_x)[3],
                                          const float (&flow_y)[3]) {
  if (to.flow[0] == nullptr) return;
#pragma unroll
  for (int h = 0; h < 3; ++h) {
    if (h >= t.hops) continue;
    float x = LaneSum(flow_x[h], 32), y = LaneSum(flow_y[h], 32);
    if ((threadIdx.x & 31) == 0) to.flow[h][2 * (i64)pixel] = x, to.flow[h][2 * (i64)pixel + 1] = y;
  }
}
// A warp: one pixel. `columns` holds the gradient of the columns and, where `refill`, becomes the columns themselves.
template <int V>
__device__ __forceinline__ void Spread(const Taps& t, Elem* columns, int refill, const TapGradients& to) {
  u32 i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
  int lane = threadIdx.x & 31, all = t.groups * t.taps;
  if (i >= (u32)t.count) return;
  int pixel = t.first + (int)i;
  bool frames = Wanted(to.frames);
  float scale = to.frames.fixed ? *to.frames.scale : 1.f;
  float flow_x[3] = {0.f, 0.f, 0.f}, flow_y[3] = {0.f, 0.f, 0.f};
  for (int item = lane; item < all; item += 32) {
    int number = item / t.groups, group = item - number * t.groups, at = group * t.taps + number;
    Tap tap = TapOf(t, pixel, at);
    Spot spot = SpotOf(t, tap, pixel, number);
    const Place& place = spot.place;
    float along[4] = {0.f, 0.f, 0.f, 0.f}, weight[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) weight[k] = Share(place, k) * tap.mask;
#pragma unroll 1
    for (int c = group * t.per_group; c < (group + 1) * t.per_group; c += V) {
      Elem* column = columns + ColumnOf(t, (int)i, number, c);
      Some<V> gradient = Read<V>(column), sum = Nothing<V>(), x[4];
      i64 from[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        from[k] = spot.frame + (i64)place.row[k] * t.channels + c;
        x[k] = place.row[k] < 0 ? Nothing<V>() : Read<V>(t.frames + from[k]);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          along[k] += gradient.v[v] * x[k].v[v];
          sum.v[v] += weight[k] * x[k].v[v];
        }
        if (frames && place.row[k] >= 0) Add<V>(to.frames, scale, from[k], weight[k], gradient);
      }
      if (refill) Write<V>(column, sum);
    }
    float mask = 0.f;
#pragma unroll
    for (int k = 0; k < 4; ++k) mask += Share(place, k) * along[k];
    float x = tap.mask * AlongX(place, along), y = tap.mask * AlongY(place, along);
    GiveTap(t, to, pixel, at, tap, {x, y, mask}, flow_x, flow_y);
  }
  GiveFlows(t, to, pixel, flow_x, flow_y);
}
// The same with a lane for every two channels: what groups add next to each other goes out as whole lines, and atomics
// are paid by the line. PAIRS of channels in a group of offsets, and one in a group of the weight.
template <int PAIRS>
__device__ __forceinline__ void SpreadPairs(const Taps& t, Elem* columns, int refill, const TapGradients& to) {
  constexpr int kItems = 32 / PAIRS;  // at a time: groups of a tap, then of the next
  u32 i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
  int lane = threadIdx.x & 31, all = t.groups * t.taps, own = lane / PAIRS;
  if (i >= (u32)t.count) return;
  int pixel = t.first + (int)i;
  bool frames = Wanted(to.frames);
  float scale = to.frames.fixed ? *to.frames.scale : 1.f;
  float flow_x[3] = {0.f, 0.f, 0.f}, flow_y[3] = {0.f, 0.f, 0.f};
  for (int first = 0; first < all; first += kItems) {
    int item = min(first + own, all - 1), number = item / t.groups, group = item - number * t.groups;
    int at = group * t.taps + number, c = group * t.per_group + 2 * (lane - own * PAIRS);
    bool on = own < kItems && first + own < all;
    Tap tap = TapOf(t, pixel, at);
    float mask = 0.f, x = 0.f, y = 0.f;
    if (on) {
      Spot spot = SpotOf(t, tap, pixel, number);
      const Place& place = spot.place;
      Elem* column = columns + ColumnOf(t, (int)i, number, c);
      Some<2> gradient = Read<2>(column), sum = Nothing<2>(), value[4];
      i64 from[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        from[k] = spot.frame + (i64)place.row[k] * t.channels + c;
        value[k] = place.row[k] < 0 ? Nothing<2>() : Read<2>(t.frames + from[k]);
      }
      float along[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float weight = Share(place, k) * tap.mask;
        along[k] = gradient.v[0] * value[k].v[0] + gradient.v[1] * value[k].v[1];
        sum.v[0] += weight * value[k].v[0], sum.v[1] += weight * value[k].v[1];
        if (frames && place.row[k] >= 0) Add<2>(to.frames, scale, from[k], weight, gradient);
      }
      if (refill) Write<2>(column, sum);
#pragma unroll
      for (int k = 0; k < 4; ++k) mask += Share(place, k) * along[k];
      x = tap.mask * AlongX(place, along), y = tap.mask * AlongY(place, along);
    }
    float own_mask = mask, own_x = x, own_y = y;
#pragma unroll
    for (int step = 1; step < PAIRS; ++step) {
      mask += __shfl_down_sync(0xffffffffu, own_mask, step);
      x += __shfl_down_sync(0xffffffffu, own_x, step);
      y += __shfl_down_sync(0xffffffffu, own_y, step);
    }
    if (!on || lane != own * PAIRS) continue;
    GiveTap(t, to, pixel, at, tap, {x, y, mask}, flow_x, flow_y);
  }
  GiveFlows(t, to, pixel, flow_x, flow_y);
}
extern "C" __global__ void __launch_bounds__(256, 4) deform_back_pairs_1(Taps t, Elem* columns, int refill, TapGradients to) {
  SpreadPairs<1>(t, columns, refill, to);
}
extern "C" __global__ void __launch_bounds__(256, 4) deform_back_pairs_2(Taps t, Elem* columns, int refill, TapGradients to) {
  SpreadPairs<2>(t, columns, refill, to);
}
extern "C" __global__ void __launch_bounds__(256, 4) deform_back_pairs_3(Taps t, Elem* columns, int refill, TapGradients to) {
  SpreadPairs<3>(t, columns, refill, to);
}
extern "C" __global__ void __launch_bounds__(256, 4) deform_back_pairs_4(Taps t, Elem* columns, int refill, TapGradients to) {
  SpreadPairs<4>(t, columns, refill, to);
}
extern "C" __global__ void __launch_bounds__(256, 3) deform_back_1(Taps t, Elem* columns, int refill, TapGradients to) {
  Spread<1>(t, columns, refill, to);
}
extern "C" __global__ void __launch_bounds__(256, 3) deform_back_2(Taps t, Elem* columns, int refill, TapGradients to) {
  Spread<2>(t, columns, refill, to);
}
extern "C" __global__ void __launch_bounds__(256, 2) deform_back_4(Taps t, Elem* columns, int refill, TapGradients to) {
  Spread<4>(t, columns, refill, to);
}

// ---- Warping along a flow ----
struct Warp {
  int count, height, width, channels, border;
  const Elem* frames;
  const float* flow;
};
// A place in a frame, and how fast it moves with the flow: 0 where it was held at the border.
struct Held { float v, moves; };
__device__ __forceinline__ Held HeldAt(float v, int size, int border) {
  float last = (float)(size - 1);
  if (!border) return {v, 1.f};
  return {v > 0.f ? (v < last ? v : last) : 0.f, v > 0.f && v < last ? 1.f : 0.f};
}
struct Aim { Place place; i64 frame; float moves_x, moves_y; };
__device__ __forceinline__ Aim AimOf(const Warp& w, int pixel) {
  int area = w.height * w.width, image = pixel / area, p = pixel - image * area, i = p / w.width, j = p - i * w.width;
  Held x = HeldAt((float)j + w.flow[2 * (i64)pixel], w.width, w.border);
  Held y = HeldAt((float)i + w.flow[2 * (i64)pixel + 1], w.height, w.border);
  return {PlaceOf(x.v, y.v, w.height, w.width), (i64)image * area * w.channels, x.moves, y.moves};
}

template <int V>
__device__ __forceinline__ void WarpForward(const Warp& w, Elem* __restrict__ out) {
  u32 steps = w.channels / V, all = (u32)w.count * steps;
  for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < all; n += gridDim.x * blockDim.x) {
    int pixel = (int)(n / steps), c = (int)(n - pixel * steps) * V;
    Aim aim = AimOf(w, pixel);
    Some<V> sum = Nothing<V>();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (aim.place.row[k] < 0) continue;
      Some<V> x = Read<V>(w.frames + aim.frame + (i64)aim.place.row[k] * w.channels + c);
      float weight = Share(aim.place, k);
#pragma unroll
      for (int v = 0; v < V; ++v) sum.v[v] += weight * x.v[v];
    }
    Write<V>(out + (i64)pixel * w.channels + c, sum);
  }
}
extern "C" __global__ void warp_1(Warp w, Elem* out) { WarpForward<1>(w, out); }
extern "C" __global__ void warp_8(Warp w, Elem* out) { WarpForward<8>(w, out); }

// `lanes` threads a pixel, a power of two up to 32. Threads beyond the last pixel take part in the sums.
template <int V>
__device__ __forceinline__ void WarpBackward(const Warp& w, const Elem* __restrict__ gradient, Into to, float* flow,
                                             int lanes) {
  u32 n = blockIdx.x * blockDim.x + threadIdx.x, pixel = n / (u32)lanes;
  int lane = (int)(n - pixel * (u32)lanes);
  float x = 0.f, y = 0.f;
  if (pixel < (u32)w.count) {
    Aim aim = AimOf(w, (int)pixel);
    bool frames = Wanted(to);
    float scale = to.fixed ? *to.scale : 1.f, along[4] = {0.f, 0.f, 0.f, 0.f};
    for (int c = lane * V; c < w.channels; c += lanes * V) {
      Some<V> g = Read<V>(gradient + (i64)pixel * w.channels + c);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (aim.place.row[k] < 0) continue;
        i64 from = aim.frame + (i64)aim.place.row[k] * w.channels + c;
        if (flow) {
          Some<V> value = Read<V>(w.frames + from);
#pragma unroll
          for (int v = 0; v < V; ++v) along[k] += g.v[v] * value.v[v];
        }
        if (frames) Add<V>(to, scale, from, Share(aim.place, k), g);
      }
    }
    x = aim.moves_x * AlongX(aim.place, along), y = aim.moves_y * AlongY(aim.place, along);
  }
  if (flow == nullptr) return;
  x = LaneSum(x, lanes), y = LaneSum(y, lanes);
  if (lane == 0 && pixel < (u32)w.count) flow[2 * (i64)pixel] = x, flow[2 * (i64)pixel + 1] = y;
}
extern "C" __global__ void warp_back_1(Warp w, const Elem* gradient, Into to, float* flow, int lanes) {
  WarpBackward<1>(w, gradient, to, flow, lanes);
}
extern "C" __global__ void warp_back_8(Warp w, const Elem* gradient, Into to, float* flow, int lanes) {
  WarpBackward<8>(w, gradient, to, flow, lanes);
}

// The four pixels around a place: n = pixel * 4 + corner; -1 outside.
__device__ __forceinline__ i64 CornerOf(const Warp& w, u32 n) {
  int pixel = (int)(n >> 2), area = w.height * w.width, image = pixel / area, p = pixel - image * area;
  int i = p / w.width, j = p - i * w.width;
  float x = (float)j + w.flow[2 * (i64)pixel], y = (float)i + w.flow[2 * (i64)pixel + 1];
  x = n & 2 ? ceilf(x) : floorf(x), y = n & 1 ? ceilf(y) : floorf(y);
  if (!(x >= 0.f && x < (float)w.width && y >= 0.f && y < (float)w.height)) return -1;
  return (i64)image * area + (int)y * w.width + (int)x;
}
extern "C" __global__ void nearest(Warp w, Elem* out) {
  for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < (u32)w.count * 4; n += gridDim.x * blockDim.x) {
    i64 row = CornerOf(w, n);
    for (int c = 0; c < w.channels; ++c) {
      out[(i64)n * w.channels + c] = row < 0 ? (Elem)0 : w.frames[row * w.channels + c];
    }
  }
}
extern "C" __global__ void nearest_back(Warp w, const Elem* gradient, Into to) {
  float scale = to.fixed ? *to.scale : 1.f;
  for (u32 n = blockIdx.x * blockDim.x + threadIdx.x; n < (u32)w.count * 4; n += gridDim.x * blockDim.x) {
    i64 row = CornerOf(w, n);
    if (row < 0) continue;
    for (int c = 0; c < w.channels; ++c) {
      Add<1>(to, scale, row * w.channels + c, 1.f, Read<1>(gradient + (i64)n * w.channels + c));
    }
  }
}

// Sums of fixed point as numbers. A bound that was not finite makes them NaN.
extern "C" __global__ void settle(const i64* fixed, const float* scale, Elem* out, i64 count) {
  double one = 1.0 / (double)*scale;
  for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += (i64)gridDim.x * blockDim.x) {
    SetOne(out + n, (float)((double)fixed[n] * one));
  }
}
)cuda";

}  // namespace lockstep::models::warp
