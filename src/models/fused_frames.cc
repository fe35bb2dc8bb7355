#include "models/fused_frames.h"

#include <torch/types.h>

#include "models/fused_kernels.h"

namespace lockstep::models::fused {
namespace {

// Frames as a plain tensor; a view where possible.
at::Tensor Plain(const at::Tensor& z, Layout layout, const Shape& shape) {
  int64_t groups = shape.Count() / layout.group, c = shape.channels, h = shape.height, w = shape.width;
  if (!layout.phases) {
    if (layout.group == 1) return z;
    return z.unflatten(1, {layout.group, c}).flatten(0, 1).contiguous(kLast);
  }
  at::Tensor parts = z.unflatten(1, {layout.group, 2, 2, c});
  at::Tensor out = EmptyLast(z, shape.Count(), c, h, w);
  at::Tensor pixels = out.view({groups, layout.group, c, h / 2, 2, w / 2, 2});
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 2; ++b) {
      pixels.select(6, b).select(4, a).copy_(parts.select(2, a).select(2, b).narrow(3, a, h / 2).narrow(4, b, w / 2));
    }
  }
  return out;
}

at::Tensor Laid(const at::Tensor& plain, Layout layout, const Shape& shape) {
  int64_t groups = shape.Count() / layout.group, c = shape.channels, h = shape.height, w = shape.width;
  if (!layout.phases) {
    if (layout.group == 1) return plain.contiguous(kLast);
    return plain.unflatten(0, {groups, layout.group}).flatten(1, 2).contiguous(kLast);
  }
  at::Tensor out = EmptyLast(plain, groups, layout.group * 4 * c, h / 2 + 1, w / 2 + 1).zero_();
  at::Tensor parts = out.unflatten(1, {layout.group, 2, 2, c});
  at::Tensor pixels = plain.reshape({groups, layout.group, c, h / 2, 2, w / 2, 2});
  for (int a = 0; a < 2; ++a) {
    for (int b = 0; b < 2; ++b) {
      parts.select(2, a).select(2, b).narrow(3, a, h / 2).narrow(4, b, w / 2).copy_(pixels.select(6, b).select(4, a));
    }
  }
  return out;
}

at::Tensor Apply(const at::Tensor& z, Layout layout, const Shape& shape, const After& after) {
  at::Tensor v = Plain(z, layout, shape);
  if (after.bias.defined()) v.add_(after.bias.to(v.scalar_type()).view({1, -1, 1, 1}));
  if (after.residual.defined()) v.add_(after.residual.narrow(1, 0, shape.channels));
  return after.relu ? v.relu_() : v;
}

}  // namespace

at::Tensor EmptyLast(const at::Tensor& like, int64_t n, int64_t c, int64_t h, int64_t w) {
  return at::empty({n, c, h, w}, like.options().requires_grad(false), kLast);
}

at::Tensor WithPast(const at::Tensor& z, Layout layout, const Shape& shape, const After& after,
                    const at::Tensor& first) {
  int64_t c = shape.channels, frames = shape.frames;
  at::Tensor cat = EmptyLast(z, shape.Count(), 2 * c, shape.height, shape.width);
  if (kernels::Usable(z, c)) {
    kernels::Epilogue(z, layout, shape, after, first, cat, {}, 1);
    return cat;
  }
  at::Tensor v = Apply(z, layout, shape, after).unflatten(0, {shape.clips, frames});
  at::Tensor clips = cat.unflatten(0, {shape.clips, frames});
  clips.narrow(2, 0, c).copy_(v);
  at::Tensor past = clips.narrow(2, c, c);
  if (frames > 1) past.narrow(1, 1, frames - 1).copy_(v.narrow(1, 0, frames - 1));
  first.defined() ? past.select(1, 0).copy_(first) : past.select(1, 0).zero_();
  return cat;
}

at::Tensor Regroup(const at::Tensor& z, Layout layout, const Shape& shape, const After& after, int64_t group) {
  if (kernels::Usable(z, shape.channels)) {
    at::Tensor out = EmptyLast(z, shape.Count() / group, group * shape.channels, shape.height, shape.width);
    kernels::Epilogue(z, layout, shape, after, {}, {}, out, group);
    return out;
  }
  return Laid(Apply(z, layout, shape, after), {.group = group}, shape);
}

at::Tensor Collect(const Arriving& from, const Shape& shape, Layout layout, const at::Tensor& sums) {
  int64_t c = shape.channels, frames = shape.frames;
  const at::Tensor& like = from.direct.defined() ? from.direct : from.both;
  if (kernels::Usable(like, c)) {
    int64_t groups = shape.Count() / layout.group, each = layout.group * c;
    at::Tensor into = from.overwrite  ? from.direct
                      : layout.phases ? EmptyLast(like, groups, 4 * each, shape.height / 2 + 1, shape.width / 2 + 1)
                                      : EmptyLast(like, groups, each, shape.height, shape.width);
    kernels::Collect(from, shape, layout, into, sums);
    return into;
  }
  at::Tensor g;
  if (from.direct.defined()) g = Plain(from.direct, {.group = from.direct_group}, shape);
  if (from.both.defined()) {
    at::Tensor own = from.both.narrow(1, 0, c);
    g = !g.defined() ? own.clone(kLast) : from.overwrite ? g.add_(own) : g + own;
    if (frames > 1) {
      g.unflatten(0, {shape.clips, frames})
          .narrow(1, 0, frames - 1)
          .add_(from.both.unflatten(0, {shape.clips, frames}).narrow(2, c, c).narrow(1, 1, frames - 1));
    }
  }
  if (from.active.defined()) {
    at::Tensor active =
        from.active_with_past ? from.active.narrow(1, 0, c) : Plain(from.active, {.group = from.active_group}, shape);
    bool mine = from.overwrite || from.both.defined();
    g = mine ? at::threshold_backward_out(g, g, active, 0) : at::threshold_backward(g, active, 0);
  }
  return Laid(g, layout, shape);
}

at::Tensor SumsFor(const at::Tensor& like, int64_t channels, int64_t count) {
  if (!kernels::Usable(like, channels)) return {};
  return at::empty({count, kernels::SumBlocks(), channels}, like.options().dtype(at::kFloat).requires_grad(false));
}

at::Tensor TotalOf(const at::Tensor& sums, const at::Tensor& like) { return kernels::Total(sums, like); }

void ClearEdges(const at::Tensor& phases, int64_t channels) {
  at::Tensor parts = phases.unflatten(1, {-1, 2, 2, channels});
  for (int a = 0; a < 2; ++a) {
    parts.select(2, a).select(4, a == 0 ? parts.size(5) - 1 : 0).zero_();
    parts.select(3, a).select(5, a == 0 ? parts.size(6) - 1 : 0).zero_();
  }
}

}  // namespace lockstep::models::fused
