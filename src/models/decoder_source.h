// The CUDA source of decoder_kernels.cc, for NVRTC (cuda/kernel_source.h says what stands before it). Elem is the type
// of matrix products, `Wide` kernels have float for the residual stream and the norms' weights, the others Elem. A
// thread moves eight neighbouring elements at a time. Sums over a row and over rows have a fixed order.
#pragma once

namespace lockstep::models::decoder::kernels {

inline constexpr char kSource[] = R"cuda(
// Sums of all threads of a block, in every thread.
template <int N>
__device__ __forceinline__ void BlockSum(float (&x)[N]) {
  __shared__ float parts[N][32];
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
#pragma unroll
  for (int i = 0; i < N; ++i)
    for (int step = 16; step > 0; step >>= 1) x[i] += __shfl_xor_sync(0xffffffffu, x[i], step);
  if (lane == 0)
    for (int i = 0; i < N; ++i) parts[i][warp] = x[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    x[i] = lane < warps ? parts[i][lane] : 0.f;
    for (int step = 16; step > 0; step >>= 1) x[i] += __shfl_xor_sync(0xffffffffu, x[i], step);
  }
  __syncthreads();
}

__device__ __forceinline__ void Round(const float*, F8&) {}
#if KIND != 0
__device__ __forceinline__ void Round(const u16*, F8& f) {
  for (int i = 0; i < 8; i += 2) {
    u32 both = Down(f.v[i], f.v[i + 1]);
    f.v[i] = Up(both & 0xffff), f.v[i + 1] = Up(both >> 16);
  }
}
#endif

// One row a block; blockDim.x * 8 >= width, whole warps.
template <typename R>
__device__ __forceinline__ void NormForward(const R* x, const Elem* y, const R* weight, R* sum, Elem* normed,
                                            float* inverse, int width, float epsilon) {
  int c = threadIdx.x * 8;
  bool in = c < width;
  i64 at = (i64)blockIdx.x * width + c;
  F8 v = in ? Load(x + at) : Zero();
  if (in && y) {
    F8 more = Load(y + at);
    for (int i = 0; i < 8; ++i) v.v[i] += more.v[i];
    Round(x, v);
    if (sum) Store(sum + at, v);
  }
  float square[1] = {0.f};
  for (int i = 0; i < 8; ++i) square[0] += v.v[i] * v.v[i];
  BlockSum(square);
  float inv = rsqrtf(square[0] / width + epsilon);
  if (threadIdx.x == 0 && inverse) inverse[blockIdx.x] = inv;
  if (!in) return;
  F8 w = Load(weight + c);
  for (int i = 0; i < 8; ++i) v.v[i] *= inv;
  Round(x, v);
  for (int i = 0; i < 8; ++i) v.v[i] *= w.v[i];
  Store(normed + at, v);
}

// Rows are dealt to the blocks; each writes its part of the weight's gradient to partial[block]. x (+ y) is what was
// normed, `along` the gradient that came beside the norm.
template <typename R>
__device__ __forceinline__ void NormBackward(const Elem* dy, const R* x, const Elem* y, const float* inverse,
                                             const R* weight, const R* along, R* dx, Elem* narrow, Elem* normed,
                                             float* partial, int rows, int width) {
  int c = threadIdx.x * 8;
  bool in = c < width;
  F8 w = in ? Load(weight + c) : Zero(), dw = Zero();
  for (int row = blockIdx.x; row < rows; row += gridDim.x) {
    i64 at = (i64)row * width + c;
    float inv = inverse[row];
    F8 v = Zero(), d = Zero();
    if (in) {
      v = Load(x + at), d = Load(dy + at);
      if (y) {
        F8 more = Load(y + at);
        for (int i = 0; i < 8; ++i) v.v[i] += more.v[i];
        Round(x, v);
      }
    }
    float dot[1] = {0.f};
    for (int i = 0; i < 8; ++i) {
      v.v[i] *= inv;
      dw.v[i] += d.v[i] * v.v[i];
      d.v[i] *= w.v[i];
      dot[0] += d.v[i] * v.v[i];
    }
    BlockSum(dot);
    if (!in) continue;
    float mean = dot[0] / width;
    F8 out = along ? Load(along + at) : Zero();
    for (int i = 0; i < 8; ++i) out.v[i] += (d.v[i] - v.v[i] * mean) * inv;
    Store(dx + at, out);
    if (narrow) Store(narrow + at, out);
    if (normed) {
      Round(x, v);
      for (int i = 0; i < 8; ++i) v.v[i] *= w.v[i];
      Store(normed + at, v);
    }
  }
  if (in) Store(partial + (i64)blockIdx.x * width + c, dw);
}

extern "C" __global__ void rms_norm(const Elem* x, const Elem* y, const Elem* weight, Elem* sum, Elem* normed,
                                float* inverse, int width, float epsilon) {
  NormForward<Elem>(x, y, weight, sum, normed, inverse, width, epsilon);
}
extern "C" __global__ void rms_norm_wide(const float* x, const Elem* y, const float* weight, float* sum, Elem* normed,
                                     float* inverse, int width, float epsilon) {
  NormForward<float>(x, y, weight, sum, normed, inverse, width, epsilon);
}
extern "C" __global__ void rms_norm_backward(const Elem* dy, const Elem* x, const Elem* y, const float* inverse,
                                         const Elem* weight, const Elem* along, Elem* dx, Elem* narrow, Elem* normed,
                                         float* partial, int rows, int width) {
  NormBackward<Elem>(dy, x, y, inverse, weight, along, dx, narrow, normed, partial, rows, width);
}
extern "C" __global__ void rms_norm_backward_wide(const Elem* dy, const float* x, const Elem* y, const float* inverse,
                                              const float* weight, const float* along, float* dx, Elem* narrow,
                                              Elem* normed, float* partial, int rows, int width) {
  NormBackward<float>(dy, x, y, inverse, weight, along, dx, narrow, normed, partial, rows, width);
}

// Elements i and i + half of a head turn together, eight i at a time. Tables are [table_rows, half].
template <typename R>
__device__ __forceinline__ void Turn(const Elem* from, Elem* to, const R* cos, const R* sin, int half, float sign) {
  F8 a = Load(from), b = Load(from + half), c = Load(cos), s = Load(sin), x, y;
  for (int i = 0; i < 8; ++i) {
    x.v[i] = a.v[i] * c.v[i] - sign * b.v[i] * s.v[i];
    y.v[i] = b.v[i] * c.v[i] + sign * a.v[i] * s.v[i];
  }
  Store(to, x);
  Store(to + half, y);
}

// In place, the first `heads` heads of each row of `stride` elements.
template <typename R>
__device__ __forceinline__ void RotateRows(Elem* x, const R* cos, const R* sin, i64 rows, int heads, int size,
                                           int stride, int table_rows) {
  int half = size / 2, steps = half / 8, row_steps = heads * steps;
  i64 total = rows * row_steps;
  for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < total; n += (i64)gridDim.x * blockDim.x) {
    i64 row = n / row_steps;
    int rest = (int)(n - row * row_steps), head = rest / steps, i = (rest - head * steps) * 8;
    Elem* p = x + row * stride + head * size + i;
    i64 t = (row % table_rows) * half + i;
    Turn(p, p, cos + t, sin + t, half, 1.f);
  }
}
extern "C" __global__ void rope(Elem* x, const Elem* cos, const Elem* sin, i64 rows, int heads, int size, int stride,
                                  int table_rows) {
  RotateRows(x, cos, sin, rows, heads, size, stride, table_rows);
}
extern "C" __global__ void rope_wide(Elem* x, const float* cos, const float* sin, i64 rows, int heads, int size,
                                       int stride, int table_rows) {
  RotateRows(x, cos, sin, rows, heads, size, stride, table_rows);
}

#if KIND == 0
struct F8Raw { uint4 a, b; };
#else
typedef uint4 F8Raw;
#endif
struct Heads { const Elem* data; i64 batch, token, head; int count; };  // strides in elements

// Turns gradients of queries and keys back, and puts all three beside each other as the projection wrote them.
template <typename R>
__device__ __forceinline__ void RotateBack(Heads q, Heads k, Heads v, Elem* to, const R* cos, const R* sin, i64 rows,
                                           int length, int size, int table_rows) {
  int half = size / 2, steps = half / 8, heads = q.count + k.count + v.count, row_steps = heads * steps;
  i64 total = rows * row_steps;
  for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < total; n += (i64)gridDim.x * blockDim.x) {
    i64 row = n / row_steps, batch = row / length, token = row - batch * length;
    int rest = (int)(n - row * row_steps), head = rest / steps, i = (rest - head * steps) * 8;
    Elem* out = to + (row * heads + head) * size + i;
    int kind = head < q.count ? 0 : head < q.count + k.count ? 1 : 2;
    const Heads& h = kind == 0 ? q : kind == 1 ? k : v;
    int own = kind == 0 ? head : kind == 1 ? head - q.count : head - q.count - k.count;
    const Elem* from = h.data + batch * h.batch + token * h.token + own * h.head + i;
    if (kind == 2) {
      *(F8Raw*)out = *(const F8Raw*)from;
      *(F8Raw*)(out + half) = *(const F8Raw*)(from + half);
    } else {
      i64 t = (row % table_rows) * half + i;
      Turn(from, out, cos + t, sin + t, half, -1.f);
    }
  }
}
extern "C" __global__ void rope_back(Heads q, Heads k, Heads v, Elem* to, const Elem* cos, const Elem* sin, i64 rows,
                                       int length, int size, int table_rows) {
  RotateBack(q, k, v, to, cos, sin, rows, length, size, table_rows);
}
extern "C" __global__ void rope_back_wide(Heads q, Heads k, Heads v, Elem* to, const float* cos, const float* sin,
                                            i64 rows, int length, int size, int table_rows) {
  RotateBack(q, k, v, to, cos, sin, rows, length, size, table_rows);
}

// Rows of [gate | up], `width` each -> silu(gate) * up.
extern "C" __global__ void swiglu(const Elem* both, Elem* out, i64 rows, int width) {
  int steps = width / 8;
  i64 total = rows * steps;
  for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < total; n += (i64)gridDim.x * blockDim.x) {
    i64 row = n / steps;
    int i = (int)(n - row * steps) * 8;
    F8 g = Load(both + row * 2 * width + i), u = Load(both + row * 2 * width + width + i);
    for (int j = 0; j < 8; ++j) g.v[j] = g.v[j] / (1.f + __expf(-g.v[j])) * u.v[j];
    Store(out + row * width + i, g);
  }
}
// `both` becomes its gradient, and `out` the output once more in place of the output's gradient.
extern "C" __global__ void swiglu_backward(Elem* both, Elem* out, i64 rows, int width) {
  int steps = width / 8;
  i64 total = rows * steps;
  for (i64 n = (i64)blockIdx.x * blockDim.x + threadIdx.x; n < total; n += (i64)gridDim.x * blockDim.x) {
    i64 row = n / steps;
    int i = (int)(n - row * steps) * 8;
    Elem *gate = both + row * 2 * width + i, *up = gate + width;
    F8 g = Load(gate), u = Load(up), d = Load(out + row * width + i), h;
    for (int j = 0; j < 8; ++j) {
      float s = 1.f / (1.f + __expf(-g.v[j])), silu = g.v[j] * s;
      h.v[j] = silu * u.v[j];
      g.v[j] = d.v[j] * u.v[j] * (s + silu * (1.f - s));
      u.v[j] = d.v[j] * silu;
    }
    Store(gate, g);
    Store(up, u);
    Store(out + row * width + i, h);
  }
}

// One row of logits a block: -log softmax at the label (0 where it is negative), and the logits become softmax minus
// one-hot (0 in rows without a label and in the columns from `width` to `stride`). Both widths are padded to eight.
extern "C" __global__ void cross_entropy(Elem* logits, const i64* labels, float* losses, int width, int stride,
                                         int gradients) {
  __shared__ float label_logit;
  Elem* row = logits + (i64)blockIdx.x * stride;
  i64 label = labels[blockIdx.x];
  if (label < 0) {
    if (gradients)
      for (int c = threadIdx.x * 8; c < stride; c += blockDim.x * 8) Store(row + c, Zero());
    if (threadIdx.x == 0) losses[blockIdx.x] = 0.f;
    return;
  }
  float top = -3.0e38f, sum = 0.f;  // of this thread: sum of exp(x - top)
  for (int c = threadIdx.x * 8; c < width; c += blockDim.x * 8) {
    F8 f = Load(row + c);
    float high = f.v[0];
    for (int i = 0; i < 8; ++i) {
      if (c + i >= width) f.v[i] = -3.0e38f;
      high = fmaxf(high, f.v[i]);
      if (c + i == label) label_logit = f.v[i];
    }
    if (high > top) sum *= __expf(top - high), top = high;
    for (int i = 0; i < 8; ++i) sum += __expf(f.v[i] - top);
  }
  __shared__ float tops[32];
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
  float high = top;
  for (int step = 16; step > 0; step >>= 1) high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
  if (lane == 0) tops[warp] = high;
  __syncthreads();
  high = lane < warps ? tops[lane] : -3.0e38f;
  for (int step = 16; step > 0; step >>= 1) high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, step));
  float total[1] = {sum * __expf(top - high)};
  BlockSum(total);
  float base = high + __logf(total[0]);
  if (threadIdx.x == 0) losses[blockIdx.x] = base - label_logit;
  if (!gradients) return;
  for (int c = threadIdx.x * 8; c < stride; c += blockDim.x * 8) {
    F8 f = Load(row + c);
    for (int i = 0; i < 8; ++i) {
      f.v[i] = c + i < width ? __expf(f.v[i] - base) : 0.f;
      if (c + i == label) f.v[i] -= 1.f;
    }
    Store(row + c, f);
  }
}
)cuda";

}  // namespace lockstep::models::decoder::kernels
