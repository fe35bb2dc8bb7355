#include "models/deformable.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/parallel.h"
#include "models/bilinear.h"
#include "models/deformable_gpu.h"
#include "models/deformable_shape.h"

namespace lockstep::models {
namespace {

using at::Tensor;

constexpr int64_t kColumnBytes = 8 << 20;  // of the matrix of sampled values: stays in the last cache

DeformableShape ShapeOf(const DeformableArgs& a) {
  return DeformableShapeOf(a.frames, a.offset.sizes(), a.mask.sizes(), a.weight, a.bias);
}

// Channels [begin, begin + size) of one group of the weight and one of the offsets.
struct ChannelRun {
  int64_t begin, size, group;
};

// The runs of every group of offsets.
std::vector<std::vector<ChannelRun>> RunsOf(const DeformableShape& s) {
  std::vector<std::vector<ChannelRun>> runs(static_cast<size_t>(s.offset_groups));
  for (int64_t g = 0; g < s.offset_groups; ++g) {
    const int64_t end = (g + 1) * s.PerOffsetGroup();
    for (int64_t c = g * s.PerOffsetGroup(); c < end;) {
      const int64_t group = c / s.PerGroup(), size = std::min(end, (group + 1) * s.PerGroup()) - c;
      runs[static_cast<size_t>(g)].push_back({c, size, group});
      c += size;
    }
  }
  return runs;
}

// Calls f with the size of all runs as a constant, where they agree about one that is common: loops over channels are
// then unrolled. 0: each run has its own.
template <typename F>
void WithRunSize(const std::vector<std::vector<ChannelRun>>& runs, const F& f) {
  const int64_t size = runs[0][0].size;
  bool same = true;
  for (const auto& group : runs) same = same && group.size() == 1 && group[0].size == size;
  switch (same ? size : 0) {
    case 4:
      return f(std::integral_constant<int64_t, 4>());
    case 6:
      return f(std::integral_constant<int64_t, 6>());
    case 12:
      return f(std::integral_constant<int64_t, 12>());
    default:
      return f(std::integral_constant<int64_t, 0>());
  }
}

// One frame and its offsets, and the pixels [first, first + count) of it that are in the columns.
template <typename T>
struct TapJob {
  const DeformableShape& s;
  const T *frame, *offset, *mask;
  int64_t first, count;
  const std::vector<std::vector<ChannelRun>>& runs;

  BilinearPlace<T> Place(int64_t pixel, int64_t at, int64_t tap) const {
    const int64_t half = s.kernel / 2, y = pixel / s.width + tap / s.kernel - half,
                  x = pixel % s.width + tap % s.kernel - half;
    return BilinearPlace<T>(T(x) + offset[2 * at + 1], T(y) + offset[2 * at], s.height, s.width);
  }
  // Columns: [group][pixel][tap][channel of the group].
  int64_t ColumnOf(const ChannelRun& run, int64_t i, int64_t tap) const {
    return ((run.group * count + i) * s.taps + tap) * s.PerGroup() + run.begin % s.PerGroup();
  }
};

template <int64_t kSize, typename T>
void FillColumns(const TapJob<T>& job, T* columns, int64_t begin, int64_t end) {
  const DeformableShape& s = job.s;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t pixel = job.first + i;
    for (int64_t g = 0; g < s.offset_groups; ++g) {
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        const int64_t at = (pixel * s.offset_groups + g) * s.taps + tap;
        const BilinearPlace<T> place = job.Place(pixel, at, tap);
        for (const ChannelRun& run : job.runs[static_cast<size_t>(g)]) {
          const int64_t size = kSize > 0 ? kSize : run.size;
          T* to = columns + job.ColumnOf(run, i, tap);
          for (int64_t c = 0; c < size; ++c) to[c] = 0;
          for (int k = 0; k < 4; ++k) {
            if (place.row[k] < 0) continue;
            const T weight = place.weight[k] * job.mask[at];
            const T* from = job.frame + place.row[k] * s.channels + run.begin;
            for (int64_t c = 0; c < size; ++c) to[c] += weight * from[c];
          }
        }
      }
    }
  }
}

// Gradients of offsets, mask and frame from that of the columns, for the groups [begin, end) of offsets: they share no
// channel, so that threads do not meet in the frame.
template <int64_t kSize, typename T>
void SpreadColumns(const TapJob<T>& job, const T* columns, T* grad_frame, T* grad_offset, T* grad_mask, int64_t begin,
                   int64_t end) {
  const DeformableShape& s = job.s;
  for (int64_t i = 0; i < job.count; ++i) {
    const int64_t pixel = job.first + i;
    for (int64_t g = begin; g < end; ++g) {
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        const int64_t at = (pixel * s.offset_groups + g) * s.taps + tap;
        const BilinearPlace<T> place = job.Place(pixel, at, tap);
        T along[4] = {0, 0, 0, 0};  // product of the gradient with each pixel
        for (const ChannelRun& run : job.runs[static_cast<size_t>(g)]) {
          const int64_t size = kSize > 0 ? kSize : run.size;
          const T* gradient = columns + job.ColumnOf(run, i, tap);
          for (int k = 0; k < 4; ++k) {
            if (place.row[k] < 0) continue;
            const int64_t row = place.row[k] * s.channels + run.begin;
            const T* from = job.frame + row;
            T* to = grad_frame + row;
            const T weight = place.weight[k] * job.mask[at];
            T sum = 0;
            for (int64_t c = 0; c < size; ++c) {
              sum += gradient[c] * from[c];
              to[c] += weight * gradient[c];
            }
            along[k] += sum;
          }
        }
        T value = 0;
        for (int k = 0; k < 4; ++k) value += place.weight[k] * along[k];
        grad_mask[at] = value;
        grad_offset[2 * at] =
            job.mask[at] * ((along[2] - along[0]) * (1 - place.wx) + (along[3] - along[1]) * place.wx);
        grad_offset[2 * at + 1] =
            job.mask[at] * ((along[1] - along[0]) * (1 - place.wy) + (along[3] - along[2]) * place.wy);
      }
    }
  }
}

int64_t PixelsAtOnce(const DeformableShape& s, int64_t element) {
  return std::clamp<int64_t>(kColumnBytes / (s.taps * s.channels * element), 64, s.pixels());
}

struct DeformableFunction : torch::autograd::Function<DeformableFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& frames, const Tensor& offset,
                        const Tensor& mask, const Tensor& weight, const Tensor& bias) {
    const DeformableArgs a{frames.contiguous(), offset.contiguous(), mask.contiguous(), weight, bias};
    const DeformableShape s = ShapeOf(a);
    context->save_for_backward({a.frames, a.offset, a.mask, weight, bias});
    const Tensor matrices = AsMatrices(weight, s);
    Tensor out = at::empty({s.count, s.pixels(), s.out}, frames.options());
    const auto runs = RunsOf(s);
    AT_DISPATCH_FLOATING_TYPES(frames.scalar_type(), "DeformableConv", [&] {
      const int64_t chunk = PixelsAtOnce(s, sizeof(scalar_t));
      Tensor memory = at::empty({s.groups * chunk * s.taps * s.PerGroup()}, frames.options());
      Each<scalar_t>(a, s, chunk, runs, [&](const TapJob<scalar_t>& job, int64_t n) {
        Tensor columns = Columns(memory, s, job);
        for (int64_t g = 0; g < s.groups; ++g) {
          Tensor part = out[n].narrow(0, job.first, job.count).narrow(1, g * (s.out / s.groups), s.out / s.groups);
          at::addmm_out(part, bias.narrow(0, g * (s.out / s.groups), s.out / s.groups), columns[g], matrices[g]);
        }
      });
    });
    return out.view({s.count, s.height, s.width, s.out});
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const DeformableArgs a{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const DeformableShape s = ShapeOf(a);
    const Tensor gradient = gradients[0].contiguous().view({s.count, s.pixels(), s.out});
    const Tensor matrices = AsMatrices(a.weight, s);
    Tensor grad_frames = at::zeros_like(a.frames), grad_offset = at::empty_like(a.offset),
           grad_mask = at::empty_like(a.mask), grad_matrices = at::zeros_like(matrices);
    const auto runs = RunsOf(s);
    AT_DISPATCH_FLOATING_TYPES(a.frames.scalar_type(), "DeformableConvBackward", [&] {
      const int64_t chunk = PixelsAtOnce(s, sizeof(scalar_t));
      Tensor memory = at::empty({s.groups * chunk * s.taps * s.PerGroup()}, a.frames.options());
      Each<scalar_t>(a, s, chunk, runs, [&](const TapJob<scalar_t>& job, int64_t n) {
        Tensor columns = Columns(memory, s, job);
        for (int64_t g = 0; g < s.groups; ++g) {
          const Tensor part =
              gradient[n].narrow(0, job.first, job.count).narrow(1, g * (s.out / s.groups), s.out / s.groups);
          Tensor sum = grad_matrices[g], own = columns[g];
          sum.addmm_(own.t(), part);
          at::mm_out(own, part, matrices[g].t());  // the columns become their gradient
        }
        const int64_t pixels = n * s.pixels();
        auto* frame = grad_frames.mutable_data_ptr<scalar_t>() + pixels * s.channels;
        auto* offset = grad_offset.mutable_data_ptr<scalar_t>() + pixels * s.offset_groups * s.taps * 2;
        auto* mask = grad_mask.mutable_data_ptr<scalar_t>() + pixels * s.offset_groups * s.taps;
        ParallelFor(at::get_num_threads(), 0, s.offset_groups, 1, [&](int64_t begin, int64_t end) {
          WithRunSize(runs, [&](auto size) {
            SpreadColumns<size>(job, columns.data_ptr<scalar_t>(), frame, offset, mask, begin, end);
          });
        });
      });
    });
    return {grad_frames, grad_offset, grad_mask, FromMatrices(grad_matrices, s), gradient.sum(at::IntArrayRef{0, 1})};
  }

  template <typename T>
  static Tensor Columns(const Tensor& memory, const DeformableShape& s, const TapJob<T>& job) {
    Tensor columns = memory.narrow(0, 0, s.groups * job.count * s.taps * s.PerGroup())
                         .view({s.groups, job.count, s.taps * s.PerGroup()});
    auto* to = columns.template mutable_data_ptr<T>();
    ParallelFor(at::get_num_threads(), 0, job.count, 16, [&](int64_t begin, int64_t end) {
      WithRunSize(job.runs, [&](auto size) { FillColumns<size>(job, to, begin, end); });
    });
    return columns;
  }

  // Runs work(job, n) for pieces of all frames.
  template <typename T, typename Work>
  static void Each(const DeformableArgs& a, const DeformableShape& s, int64_t chunk,
                   const std::vector<std::vector<ChannelRun>>& runs, const Work& work) {
    for (int64_t n = 0; n < s.count; ++n) {
      const int64_t pixels = n * s.pixels(), each = s.offset_groups * s.taps;
      for (int64_t first = 0; first < s.pixels(); first += chunk) {
        const TapJob<T> job{s,
                            a.frames.data_ptr<T>() + pixels * s.channels,
                            a.offset.data_ptr<T>() + pixels * each * 2,
                            a.mask.data_ptr<T>() + pixels * each,
                            first,
                            std::min(chunk, s.pixels() - first),
                            runs};
        work(job, n);
      }
    }
  }
};

}  // namespace

Tensor DeformableConv(const DeformableArgs& a) {
  if (DeformableOnGpu(a.frames)) return DeformableConvGpu(a);
  const at::ScalarType type = a.frames.scalar_type();
  if (!a.frames.is_cpu() || (type != at::kFloat && type != at::kDouble)) return DeformableConvByGather(a);
  return DeformableFunction::apply(a.frames, a.offset.to(type), a.mask.to(type), a.weight.to(type), a.bias.to(type));
}

Tensor FlowGuidedDeformable(const FlowGuidedArgs& a) {
  if (DeformableOnGpu(a.frames)) return FlowGuidedDeformableGpu(a);
  const int64_t taps = a.raw.size(3) / 3, hops = static_cast<int64_t>(a.flows.size());
  const std::vector<int64_t> shape{a.raw.size(0), a.raw.size(1), a.raw.size(2), hops, taps / hops, 2};
  const Tensor flow = at::stack(a.flows, 3).flip(4).unsqueeze(4);  // y first
  const Tensor offset = at::tanh(a.raw.narrow(3, 0, 2 * taps)).reshape(shape) * a.reach + flow;
  const Tensor mask = at::sigmoid(a.raw.narrow(3, 2 * taps, taps));
  return DeformableConv({a.frames, offset.flatten(3), mask, a.weight, a.bias});
}

Tensor DeformableConvByGather(const DeformableArgs& a) {
  const DeformableShape s = ShapeOf(a);
  const at::ScalarType type = a.frames.scalar_type();
  const at::TensorOptions options = a.offset.options().requires_grad(false);
  const Tensor offset = a.offset.view({s.count, s.pixels(), s.offset_groups, s.taps, 2});
  const Tensor pixel = at::arange(s.pixels(), options.dtype(at::kLong)),
               tap = at::arange(s.taps, options.dtype(at::kLong));
  const auto base = [&](const Tensor& p, const Tensor& t) {  // [pixels, 1, taps]
    return (p.unsqueeze(1) + t.unsqueeze(0) - s.kernel / 2).unsqueeze(1).to(options.dtype());
  };
  const Tensor y = offset.select(4, 0) + base(at::div(pixel, s.width, "floor"), at::div(tap, s.kernel, "floor"));
  const Tensor x = offset.select(4, 1) + base(pixel.remainder(s.width), tap.remainder(s.kernel));
  const Tensor top = at::floor(y.detach()), left = at::floor(x.detach());
  const int64_t channels = s.PerOffsetGroup();
  // [n, groups, pixels, channels]
  const Tensor frames = a.frames.view({s.count, s.pixels(), s.offset_groups, channels}).transpose(1, 2);
  Tensor sum;
  for (int k = 0; k < 4; ++k) {
    const Tensor xk = left + k % 2, yk = top + k / 2;
    const Tensor inside = xk.ge(0).logical_and(xk.lt(s.width)).logical_and(yk.ge(0)).logical_and(yk.lt(s.height));
    const Tensor weight = (k % 2 ? x - left : 1 - (x - left)) * (k / 2 ? y - top : 1 - (y - top)) * inside.to(type);
    const Tensor index = (yk.clamp(0, s.height - 1) * s.width + xk.clamp(0, s.width - 1)).to(at::kLong);
    // [n, groups, pixels * taps, channels]
    const Tensor rows = index.transpose(1, 2).reshape({s.count, s.offset_groups, -1, 1}).expand({-1, -1, -1, channels});
    const Tensor values = at::gather(frames, 2, rows).view({s.count, s.offset_groups, s.pixels(), s.taps, channels}) *
                          weight.transpose(1, 2).unsqueeze(4);
    sum = sum.defined() ? sum + values : values;
  }
  const Tensor mask = a.mask.view({s.count, s.pixels(), s.offset_groups, s.taps}).transpose(1, 2).unsqueeze(4);
  const Tensor columns = (sum * mask)
                             .permute({0, 2, 3, 1, 4})
                             .reshape({s.count * s.pixels(), s.taps, s.groups, s.PerGroup()})
                             .permute({2, 0, 1, 3})
                             .reshape({s.groups, s.count * s.pixels(), s.taps * s.PerGroup()});
  const Tensor out = at::bmm(columns, AsMatrices(a.weight, s)).transpose(0, 1).reshape({-1, s.out}) + a.bias;
  return out.view({s.count, s.height, s.width, s.out});
}

}  // namespace lockstep::models
