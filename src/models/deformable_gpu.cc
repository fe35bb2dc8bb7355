#include "models/deformable_gpu.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <vector>

#include "models/decoder_ops.h"
#include "models/deformable_shape.h"
#include "models/warp_kernels.h"

namespace lockstep::models {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGpuColumnBytes = 256 << 20;
constexpr size_t kMostFlows = 3;

// Runs work(first, count, columns) for pieces of all pixels; columns: [groups, count, taps * channels of a group].
template <typename Work>
void EachPiece(const DeformableShape& s, const at::TensorOptions& options, const Work& work) {
  const int64_t pixels = s.count * s.pixels(), row = s.taps * s.channels;
  if (pixels == 0) return;
  const int64_t most = std::max<int64_t>(1, kGpuColumnBytes / (row * static_cast<int64_t>(options.dtype().itemsize())));
  const int64_t pieces = (pixels + most - 1) / most, each = (pixels + pieces - 1) / pieces;
  const Tensor memory = at::empty({std::min(each, pixels) * row}, options);
  for (int64_t first = 0; first < pixels; first += each) {
    const int64_t count = std::min(each, pixels - first);
    work(first, count, memory.narrow(0, 0, count * row).view({s.groups, count, s.taps * s.PerGroup()}));
  }
}

// The part of [pixels, out] that one group of the weight makes.
Tensor PartOf(const Tensor& x, const DeformableShape& s, int64_t first, int64_t count, int64_t group) {
  const int64_t width = s.out / s.groups;
  return x.narrow(0, first, count).narrow(1, group * width, width);
}

Tensor RunDeform(const warp::Deform& d, const Tensor& weight, const Tensor& bias) {
  const DeformableShape& s = d.shape;
  const at::TensorOptions options = d.frames.options();
  const Tensor matrices = AsMatrices(weight.to(options.dtype()), s), add = bias.to(options.dtype());
  const Tensor out = at::empty({s.count * s.pixels(), s.out}, options);
  EachPiece(s, options, [&](int64_t first, int64_t count, const Tensor& columns) {
    warp::SampleColumns(d, first, count, columns);
    for (int64_t g = 0; g < s.groups; ++g) {
      Tensor part = PartOf(out, s, first, count, g);
      at::addmm_out(part, add.narrow(0, g * (s.out / s.groups), s.out / s.groups), columns[g], matrices[g]);
    }
  });
  return out.view({s.count, s.height, s.width, s.out});
}

struct Learned {
  Tensor frames, weight, bias;
};
struct Wanted {
  bool frames, weight, bias;
};

// Fills the gradients of offset and mask, or of raw and flows; those of frames, weight and bias are the result.
Learned RunDeformBackward(const warp::Deform& d, const Tensor& weight, const Tensor& bias, const Tensor& gradient,
                          const Wanted& wanted, warp::DeformGradients into) {
  const DeformableShape& s = d.shape;
  const at::TensorOptions options = d.frames.options();
  const Tensor dy = gradient.to(options.dtype()).contiguous().view({s.count * s.pixels(), s.out});
  const Tensor matrices = AsMatrices(weight.to(options.dtype()), s);
  if (wanted.frames) {
    into.frames = warp::FrameSums(d.frames, [&] {  // a column's gradient is a sum over the outputs
      const Tensor bound =
          dy.abs().amax().to(at::kFloat) * matrices.to(at::kFloat).abs().sum(at::IntArrayRef{2}).amax();
      return d.mask.defined() ? bound * d.mask.abs().amax() : bound;  // a sigmoid is below 1
    });
  }
  const Tensor d_matrices = wanted.weight ? at::zeros(matrices.sizes(), options.dtype(at::kFloat)) : Tensor();
  EachPiece(s, options, [&](int64_t first, int64_t count, const Tensor& columns) {
    for (int64_t g = 0; g < s.groups; ++g) {
      Tensor own = columns[g];
      at::mm_out(own, PartOf(dy, s, first, count, g), matrices[g].t());
    }
    warp::SpreadColumns(d, first, count, columns, wanted.weight, into);
    for (int64_t g = 0; g < s.groups && wanted.weight; ++g) {
      d_matrices[g].add_(at::mm(columns[g].t(), PartOf(dy, s, first, count, g)));
    }
  });
  Learned learned;
  learned.frames = into.frames.Result(d.frames.scalar_type());
  if (wanted.weight) learned.weight = FromMatrices(d_matrices, s).to(weight.scalar_type());
  if (wanted.bias) learned.bias = dy.sum(at::IntArrayRef{0}, /*keepdim=*/false, at::kFloat).to(bias.scalar_type());
  return learned;
}

struct DeformableGpuFunction : torch::autograd::Function<DeformableGpuFunction> {
  static warp::Deform From(const Tensor& frames, const Tensor& offset, const Tensor& mask, const Tensor& weight,
                           const Tensor& bias) {
    warp::Deform d;
    d.shape = DeformableShapeOf(frames, offset.sizes(), mask.sizes(), weight, bias);
    d.frames = frames, d.offset = offset, d.mask = mask;
    return d;
  }

  static Tensor forward(AutogradContext* context, const Tensor& frames, const Tensor& offset, const Tensor& mask,
                        const Tensor& weight, const Tensor& bias) {
    const warp::Deform d = From(frames.contiguous(), offset.contiguous(), mask.contiguous(), weight, bias);
    context->save_for_backward({d.frames, d.offset, d.mask, weight, bias});
    return RunDeform(d, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const warp::Deform d = From(saved[0], saved[1], saved[2], saved[3], saved[4]);
    warp::DeformGradients into;
    into.offset = at::empty_like(d.offset), into.mask = at::empty_like(d.mask);
    const Wanted wanted{context->needs_input_grad(0), context->needs_input_grad(3), context->needs_input_grad(4)};
    const Learned learned = RunDeformBackward(d, saved[3], saved[4], gradients[0], wanted, into);
    return {learned.frames, into.offset, into.mask, learned.weight, learned.bias};
  }
};

struct FlowGuidedFunction : torch::autograd::Function<FlowGuidedFunction> {
  static warp::Deform From(const Tensor& frames, const Tensor& raw, const variable_list& flows, double reach,
                           const Tensor& weight, const Tensor& bias) {
    std::vector<int64_t> offset = raw.sizes().vec(), mask = offset;
    offset[3] = raw.size(3) / 3 * 2, mask[3] = raw.size(3) / 3;
    warp::Deform d;
    d.shape = DeformableShapeOf(frames, offset, mask, weight, bias);
    d.frames = frames, d.raw = raw, d.reach = reach;
    d.flows = flows;
    return d;
  }

  static Tensor forward(AutogradContext* context, const Tensor& frames, const Tensor& raw, const Tensor& weight,
                        const Tensor& bias, at::TensorList flows, double reach) {
    variable_list dense;
    for (const Tensor& flow : flows) dense.push_back(flow.contiguous());
    const warp::Deform d = From(frames.contiguous(), raw.contiguous(), dense, reach, weight, bias);
    variable_list saved{d.frames, d.raw, weight, bias};
    saved.insert(saved.end(), dense.begin(), dense.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["reach"] = reach;
    return RunDeform(d, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const warp::Deform d = From(saved[0], saved[1], variable_list(saved.begin() + 4, saved.end()),
                                context->saved_data["reach"].toDouble(), saved[2], saved[3]);
    warp::DeformGradients into;
    into.raw = at::empty_like(d.raw);
    bool flows = false;
    for (size_t i = 0; i < d.flows.size(); ++i) flows = flows || context->needs_input_grad(4 + i);
    for (size_t i = 0; i < d.flows.size() && flows; ++i) into.flows.push_back(at::empty_like(d.flows[i]));
    const Wanted wanted{context->needs_input_grad(0), context->needs_input_grad(2), context->needs_input_grad(3)};
    const Learned learned = RunDeformBackward(d, saved[2], saved[3], gradients[0], wanted, into);
    variable_list all{learned.frames, into.raw, learned.weight, learned.bias};
    for (size_t i = 0; i < d.flows.size(); ++i) all.push_back(i < into.flows.size() ? into.flows[i] : Tensor());
    all.emplace_back();  // reach
    return all;
  }
};

}  // namespace

bool DeformableOnGpu(const Tensor& frames) {
  return frames.is_cuda() && frames.size(0) * frames.size(1) * frames.size(2) < int64_t{1} << 26 &&
         warp::Usable(frames.device(), decoder::ComputeType(frames));
}

Tensor DeformableConvGpu(const DeformableArgs& a) {
  return DeformableGpuFunction::apply(a.frames.to(decoder::ComputeType(a.frames)), a.offset.to(at::kFloat),
                                      a.mask.to(at::kFloat), a.weight, a.bias);
}

Tensor FlowGuidedDeformableGpu(const FlowGuidedArgs& a) {
  const at::ScalarType type = decoder::ComputeType(a.frames);
  variable_list flows;
  TORCH_CHECK(!a.flows.empty() && a.flows.size() <= kMostFlows && a.raw.size(3) / 3 % a.flows.size() == 0,
              "expected one to ", kMostFlows, " flows that share ", a.raw.size(3) / 3, " taps, found ", a.flows.size());
  for (const Tensor& flow : a.flows) flows.push_back(flow.to(at::kFloat));
  return FlowGuidedFunction::apply(a.frames.to(type), a.raw.to(type), a.weight, a.bias, at::TensorList(flows), a.reach);
}

}  // namespace lockstep::models
