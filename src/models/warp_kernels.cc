#include "models/warp_kernels.h"

#include <ATen/Context.h>

#include <algorithm>
#include <iterator>

#include "cuda/kernel_source.h"
#include "models/warp_source.h"

namespace lockstep::models::warp {
namespace {

using at::Tensor;

enum Kernel {
  kDeform1,
  kDeform2,
  kDeform4,
  kDeformBack1,
  kDeformBack2,
  kDeformBack4,
  kDeformBackPairs1,
  kDeformBackPairs2,
  kDeformBackPairs3,
  kDeformBackPairs4,
  kWarp1,
  kWarp8,
  kWarpBack1,
  kWarpBack8,
  kNearest,
  kNearestBack,
  kSettle,
  kKernels
};
constexpr const char* kNames[] = {"deform_1",
                                  "deform_2",
                                  "deform_4",
                                  "deform_back_1",
                                  "deform_back_2",
                                  "deform_back_4",
                                  "deform_back_pairs_1",
                                  "deform_back_pairs_2",
                                  "deform_back_pairs_3",
                                  "deform_back_pairs_4",
                                  "warp_1",
                                  "warp_8",
                                  "warp_back_1",
                                  "warp_back_8",
                                  "nearest",
                                  "nearest_back",
                                  "settle"};
static_assert(std::size(kNames) == kKernels);

cuda::KernelSource& Source() {
  static cuda::KernelSource source("VRT's warping", kSource, {std::begin(kNames), std::end(kNames)});
  return source;
}

constexpr unsigned kThreads = 256;
constexpr unsigned kFlatBlocks = 132 * 16;
constexpr double kFixedOne = 1099511627776.0;  // 2^40: room for 2^23 additions of the largest size
constexpr double kSmallestBound = 1e-20;       // keeps the scale finite in float32
constexpr int64_t kMostHops = 3;
constexpr int kMostPairs = 4;  // of channels in a group of offsets that have a kernel

// The structs of the source.
struct Taps {
  int height, width, channels, per_group, groups, taps, kernel, per_weight_group, hops, first, count;
  float reach;
  const void *frames, *offset, *mask, *raw, *flow[kMostHops];
};
struct Into {
  void *sums, *fixed, *scale;
};
struct TapGradients {
  void *offset, *mask, *raw, *flow[kMostHops];
  Into frames;
};
struct WarpArgs {
  int count, height, width, channels, border;
  const void *frames, *flow;
};

unsigned BlocksFor(int64_t threads) { return static_cast<unsigned>((threads + kThreads - 1) / kThreads); }
unsigned FlatBlocksFor(int64_t threads) { return std::min(BlocksFor(threads), kFlatBlocks); }

Into IntoOf(const FrameSums& sums) {
  return {cuda::Address(sums.sums), cuda::Address(sums.fixed), cuda::Address(sums.scale)};
}

// Whether runs of `size` channels can be read `vector` at a time.
bool Divides(int64_t vector, int64_t size, std::initializer_list<const Tensor*> tensors) {
  if (size % vector != 0) return false;
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor* x) {
    return reinterpret_cast<uintptr_t>(x->const_data_ptr()) % static_cast<size_t>(vector * x->element_size()) == 0;
  });
}

Taps TapsOf(const Deform& d, int64_t first, int64_t count) {
  const DeformableShape& s = d.shape;
  TORCH_CHECK(d.flows.size() <= kMostHops, "at most ", kMostHops, " flows, found ", d.flows.size());
  Taps taps{int(s.height),
            int(s.width),
            int(s.channels),
            int(s.PerOffsetGroup()),
            int(s.offset_groups),
            int(s.taps),
            int(s.kernel),
            int(s.PerGroup()),
            std::max(1, int(d.flows.size())),
            int(first),
            int(count),
            float(d.reach),
            cuda::Address(d.frames),
            cuda::Address(d.offset),
            cuda::Address(d.mask),
            cuda::Address(d.raw),
            {}};
  for (size_t i = 0; i < d.flows.size(); ++i) taps.flow[i] = cuda::Address(d.flows[i]);
  return taps;
}

// 0, 1 or 2 for runs of one, two or four channels.
int RunOf(const Deform& d, const Tensor& columns) {
  // Each vector lies in one group of offsets and one of the weight.
  const auto fits = [&](int64_t vector) {
    return d.shape.PerGroup() % vector == 0 && Divides(vector, d.shape.PerOffsetGroup(), {&d.frames, &columns});
  };
  return fits(4) ? 2 : fits(2) ? 1 : 0;
}

WarpArgs WarpOf(const Tensor& frames, at::IntArrayRef sizes, const Tensor& flow, bool border) {
  return {int(sizes[0] * sizes[1] * sizes[2]),
          int(sizes[1]),
          int(sizes[2]),
          int(sizes[3]),
          border ? 1 : 0,
          cuda::Address(frames),
          cuda::Address(flow)};
}

}  // namespace

bool Usable(const at::Device& device, at::ScalarType type) { return Source().Usable(device, type); }

bool FrameSums::Deterministic() { return at::globalContext().deterministicAlgorithms(); }

void FrameSums::Begin(const Tensor& frames, const Tensor& bound) {
  const at::TensorOptions options = frames.options().requires_grad(false);
  if (!bound.defined()) {
    sums = at::zeros(frames.sizes(), options.dtype(at::kFloat));
    return;
  }
  fixed = at::zeros(frames.sizes(), options.dtype(at::kLong));
  scale = (bound.to(at::kDouble).clamp_min(kSmallestBound).reciprocal() * kFixedOne).to(at::kFloat);
}

Tensor FrameSums::Result(at::ScalarType type) const {
  if (sums.defined()) return sums.to(type);
  if (!fixed.defined()) return {};
  Tensor out = at::empty(fixed.sizes(), fixed.options().dtype(type));
  void *from = cuda::Address(fixed), *one = cuda::Address(scale), *to = cuda::Address(out);
  int64_t count = fixed.numel();
  if (count > 0) Source().Launch(out, kSettle, {FlatBlocksFor(count), 1, kThreads}, {&from, &one, &to, &count});
  return out;
}

void SampleColumns(const Deform& d, int64_t first, int64_t count, const Tensor& columns) {
  Taps taps = TapsOf(d, first, count);
  void* to = cuda::Address(columns);
  Source().Launch(d.frames, kDeform1 + RunOf(d, columns),
                  {BlocksFor(count * d.shape.offset_groups * d.shape.taps), 1, kThreads}, {&taps, &to});
}

void SpreadColumns(const Deform& d, int64_t first, int64_t count, const Tensor& columns, bool refill,
                   const DeformGradients& gradients) {
  Taps taps = TapsOf(d, first, count);
  TapGradients to{cuda::Address(gradients.offset),
                  cuda::Address(gradients.mask),
                  cuda::Address(gradients.raw),
                  {},
                  IntoOf(gradients.frames)};
  for (size_t i = 0; i < gradients.flows.size(); ++i) to.flow[i] = cuda::Address(gradients.flows[i]);
  void* from = cuda::Address(columns);
  int again = refill ? 1 : 0;
  const int run = RunOf(d, columns), pairs = int(d.shape.PerOffsetGroup() / 2);
  const int kernel = run > 0 && pairs <= kMostPairs ? kDeformBackPairs1 + pairs - 1 : kDeformBack1 + run;
  Source().Launch(d.frames, kernel, {BlocksFor(count * 32), 1, kThreads}, {&taps, &from, &again, &to});
}

Tensor Warp(const Tensor& frames, const Tensor& flow, bool border) {
  Tensor out = at::empty_like(frames);
  WarpArgs warp = WarpOf(frames, frames.sizes(), flow, border);
  void* to = cuda::Address(out);
  const bool eight = Divides(8, frames.size(3), {&frames});
  if (out.numel() == 0) return out;
  Source().Launch(frames, eight ? kWarp8 : kWarp1, {FlatBlocksFor(out.numel() / (eight ? 8 : 1)), 1, kThreads},
                  {&warp, &to});
  return out;
}

void WarpBackward(const Tensor& frames, const Tensor& flow, bool border, const Tensor& gradient,
                  const FrameSums& d_frames, const Tensor& d_flow) {
  WarpArgs warp = WarpOf(frames, frames.sizes(), flow, border);
  Into into = IntoOf(d_frames);
  void *from = cuda::Address(gradient), *to_flow = cuda::Address(d_flow);
  const bool eight = Divides(8, frames.size(3), {&frames, &gradient});
  int lanes = 1;
  while (lanes < 32 && lanes * (eight ? 8 : 1) < frames.size(3)) lanes *= 2;
  if (gradient.numel() == 0) return;
  Source().Launch(frames, eight ? kWarpBack8 : kWarpBack1, {BlocksFor(int64_t{warp.count} * lanes), 1, kThreads},
                  {&warp, &from, &into, &to_flow, &lanes});
}

Tensor Nearest4(const Tensor& frames, const Tensor& flow) {
  WarpArgs warp = WarpOf(frames, frames.sizes(), flow, false);
  Tensor out = at::empty({frames.size(0), frames.size(1), frames.size(2), 4 * frames.size(3)}, frames.options());
  void* to = cuda::Address(out);
  if (out.numel() == 0) return out;
  Source().Launch(frames, kNearest, {FlatBlocksFor(int64_t{warp.count} * 4), 1, kThreads}, {&warp, &to});
  return out;
}

void Nearest4Backward(const Tensor& flow, const Tensor& gradient, const FrameSums& d_frames) {
  const Tensor& sums = d_frames.sums.defined() ? d_frames.sums : d_frames.fixed;
  WarpArgs warp = WarpOf({}, sums.sizes(), flow, false);
  Into into = IntoOf(d_frames);
  void* from = cuda::Address(gradient);
  if (gradient.numel() == 0) return;
  Source().Launch(gradient, kNearestBack, {FlatBlocksFor(int64_t{warp.count} * 4), 1, kThreads}, {&warp, &from, &into});
}

}  // namespace lockstep::models::warp
