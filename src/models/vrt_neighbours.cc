#include "models/vrt_neighbours.h"

#include <torch/autograd.h>

#include <algorithm>

#include "models/vrt_kernels.h"

namespace lockstep::models::vrt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

bool Moves(const Tensor& x) {
  return x.is_cuda() && x.size(4) % 8 == 0 && at::isReducedFloatingType(x.scalar_type()) &&
         kernels::Usable(x.device(), x.scalar_type());
}

struct NeighboursFunction : torch::autograd::Function<NeighboursFunction> {
  static variable_list forward(AutogradContext* context, const Tensor& x, int64_t hops) {
    context->saved_data["sizes"] = x.sizes();
    const int64_t pairs = x.size(1) - 1;
    variable_list out;
    for (int64_t hop = 0; hop < hops; ++hop) {
      out.push_back(at::cat({FramesOrZeros(x, hop + 1, pairs), FramesOrZeros(x, -hop, pairs)}, 1).flatten(0, 1));
    }
    out.push_back(at::cat({x.narrow(1, 0, pairs), x.narrow(1, 1, pairs)}, 1).flatten(0, 1));
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const int64_t pairs = sizes[1] - 1, hops = static_cast<int64_t>(gradients.size()) - 1;
    const auto clips = [&](const Tensor& g) { return g.contiguous().unflatten(0, {sizes[0], 2 * pairs}); };
    const Tensor current = clips(gradients.back()), dx = at::empty(sizes, current.options());
    std::vector<Tensor> sources;
    for (int64_t hop = 0; hop < hops; ++hop) sources.push_back(clips(gradients[static_cast<size_t>(hop)]));
    for (int64_t b = 0; b < sizes[0]; ++b) {  // of one clip, runs of frames are memory in one piece
      const Tensor own = dx[b], to = current[b];
      own.narrow(0, 0, pairs).copy_(to.narrow(0, 0, pairs));
      own[pairs].zero_();
      own.narrow(0, 1, pairs).add_(to.narrow(0, pairs, pairs));
      for (int64_t hop = 0; hop < std::min(hops, pairs); ++hop) {
        const Tensor from = sources[static_cast<size_t>(hop)][b];
        const int64_t count = pairs - hop;
        own.narrow(0, hop + 1, count).add_(from.narrow(0, 0, count));
        own.narrow(0, 0, count).add_(from.narrow(0, pairs + hop, count));
      }
    }
    return {dx, Tensor()};
  }
};

struct BesideFunction : torch::autograd::Function<BesideFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& aligned) {
    const Tensor x = input.detach().contiguous(), near = aligned.detach().contiguous();
    context->saved_data["sizes"] = x.sizes();
    const int64_t n = x.size(1), width = x.size(4), frame = x.size(2) * x.size(3), pairs = n - 1;
    const Tensor out = at::empty({x.size(0), n, x.size(2), x.size(3), 3 * width}, x.options());
    const Tensor rows = out.view({-1, 3 * width}), parts = near.view({-1, width});
    kernels::MoveColumns(x.view({-1, width}), 0, rows, 0, width);
    for (int64_t b = 0; b < x.size(0); ++b) {
      const Tensor own = rows.narrow(0, b * n * frame, n * frame);
      const Tensor both = parts.narrow(0, b * 2 * pairs * frame, 2 * pairs * frame);
      kernels::MoveColumns(both.narrow(0, 0, pairs * frame), 0, own.narrow(0, 0, pairs * frame), width, width);
      kernels::MoveColumns({}, 0, own.narrow(0, pairs * frame, frame), width, width);
      kernels::MoveColumns({}, 0, own.narrow(0, 0, frame), 2 * width, width);
      kernels::MoveColumns(both.narrow(0, pairs * frame, pairs * frame), 0, own.narrow(0, frame, pairs * frame),
                           2 * width, width);
    }
    return out;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const std::vector<int64_t> sizes = context->saved_data["sizes"].toIntVector();
    const int64_t n = sizes[1], width = sizes[4], frame = sizes[2] * sizes[3], pairs = n - 1;
    const Tensor g = gradients[0].contiguous(), rows = g.view({-1, 3 * width});
    const Tensor dx = at::empty(sizes, g.options());
    const Tensor near = at::empty({sizes[0] * 2 * pairs, sizes[2], sizes[3], width}, g.options());
    const Tensor parts = near.view({-1, width});
    kernels::MoveColumns(rows, 0, dx.view({-1, width}), 0, width);
    for (int64_t b = 0; b < sizes[0]; ++b) {
      const Tensor own = rows.narrow(0, b * n * frame, n * frame);
      const Tensor both = parts.narrow(0, b * 2 * pairs * frame, 2 * pairs * frame);
      kernels::MoveColumns(own.narrow(0, 0, pairs * frame), width, both.narrow(0, 0, pairs * frame), 0, width);
      kernels::MoveColumns(own.narrow(0, frame, pairs * frame), 2 * width, both.narrow(0, pairs * frame, pairs * frame),
                           0, width);
    }
    return {dx, near};
  }
};

}  // namespace

Tensor FramesOrZeros(const Tensor& x, int64_t first, int64_t count) {
  const int64_t n = x.size(1), begin = std::max<int64_t>(first, 0), end = std::min(first + count, n);
  if (begin == first && end == first + count) return x.narrow(1, first, count);
  std::vector<int64_t> padding(static_cast<size_t>(2 * x.dim() - 2), 0);  // last axis first
  padding[static_cast<size_t>(2 * x.dim() - 4)] = begin - first;
  padding[static_cast<size_t>(2 * x.dim() - 3)] = first + count - end;
  return at::constant_pad_nd(x.narrow(1, begin, end - begin), padding, 0);
}

Neighbours NeighboursOf(const Tensor& x, int64_t hops) {
  variable_list all = NeighboursFunction::apply(x, hops);
  Neighbours result;
  result.current = all.back();
  all.pop_back();
  result.sources = std::move(all);
  return result;
}

Tensor BesideNeighbours(const Tensor& x, const Tensor& aligned) {
  if (Moves(x) && aligned.scalar_type() == x.scalar_type()) return BesideFunction::apply(x, aligned);
  const int64_t n = x.size(1), pairs = n - 1;
  const Tensor both = aligned.unflatten(0, {x.size(0), 2 * pairs});
  return at::cat({x, FramesOrZeros(both.narrow(1, 0, pairs), 0, n), FramesOrZeros(both.narrow(1, pairs, pairs), -1, n)},
                 4);
}

}  // namespace lockstep::models::vrt
