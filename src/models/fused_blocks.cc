#include "models/fused_blocks.h"

#include <torch/autograd.h>
#include <torch/types.h>

#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "models/fused_kernels.h"

namespace lockstep::models::fused {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void RefuseSecondDerivatives() {
  TORCH_CHECK(!at::GradMode::is_enabled(),
              "TAEHV's fast execution has no second derivatives; use Execution::kReference for create_graph");
}

struct ConvGradients {
  Tensor input, weight, bias;
};

ConvGradients ConvBackward(const Tensor& g, const Tensor& x, const Tensor& w, bool need_x, bool need_w, bool need_b,
                           at::IntArrayRef padding = {1, 1}) {
  auto [dx, dw, db] =
      at::convolution_backward(g, x, w, need_b ? at::OptionalIntArrayRef({w.size(0)}) : at::OptionalIntArrayRef(),
                               {1, 1}, padding, {1, 1}, false, {0, 0}, 1, {need_x, need_w, need_b});
  return {dx, dw, db};
}

Tensor ConvBiasRelu(const Tensor& x, const Tensor& w, const Tensor& bias, at::IntArrayRef padding = {1, 1}) {
  if (x.is_cuda() && at::globalContext().userEnabledCuDNN()) {
    return at::cudnn_convolution_relu(x, w, bias.defined() ? std::optional(bias) : std::nullopt, {1, 1}, padding,
                                      {1, 1}, 1);
  }
  return at::conv2d(x, w, bias, {1, 1}, padding).relu_();
}

// (rows of any number, a) in memory as weights (o, i, k, k) whose channels are innermost.
Tensor AsWeight(const Tensor& rows, int64_t out, int64_t kernel) {
  return rows.reshape({out, kernel, kernel, -1}).permute({0, 3, 1, 2});
}
Tensor AsRows(const Tensor& weight, at::ScalarType type) {  // its inverse
  return weight.permute({0, 2, 3, 1}).to(type).contiguous();
}

// Merging rounds once more; not in a type of few bits.
Tensor Wide(const Tensor& parameter) {
  return at::isReducedFloatingType(parameter.scalar_type()) ? parameter.to(at::kFloat) : parameter;
}

struct PoolMerging : torch::autograd::Function<PoolMerging> {
  static Tensor forward(AutogradContext* ctx, const Tensor& pool, const Tensor& conv, at::ScalarType type) {
    int64_t o = conv.size(0), k = conv.size(1);
    Tensor rows = Wide(conv).reshape({o, k, 9}).transpose(1, 2).reshape({o * 9, k});
    Tensor columns = Wide(pool).reshape({k, -1});
    ctx->saved_data["type"] = conv.scalar_type();
    ctx->save_for_backward({rows, columns});
    return AsWeight(at::mm(rows, columns).to(type), o, 3);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    RefuseSecondDerivatives();
    variable_list saved = ctx->get_saved_variables();
    const Tensor &rows = saved[0], &columns = saved[1];
    int64_t o = rows.size(0) / 9, k = rows.size(1);
    Tensor g = AsRows(gradients[0], rows.scalar_type()).view({o * 9, -1});
    Tensor pool = at::mm(rows.t(), g).view({k, -1, 1, 1});
    Tensor conv = at::mm(g, columns.t()).view({o, 9, k}).transpose(1, 2).contiguous().view({o, k, 3, 3});
    at::ScalarType type = ctx->saved_data["type"].toScalarType();
    return {pool.to(type), conv.to(type), Tensor()};
  }
};

// Which of three neighbouring taps in the enlarged picture fall on which of two neighbours in the small one:
// [phase][tap of two][tap of three], and for both directions at once (9, 16), columns [a][b][r][s].
Tensor EnlargingTaps(const at::TensorOptions& options) {
  Tensor line = at::zeros({2, 2, 3}, at::kFloat);
  auto tap = line.accessor<float, 3>();
  tap[0][0][0] = tap[0][1][1] = tap[0][1][2] = 1;  // an even pixel: the neighbour before once, its own twice
  tap[1][0][0] = tap[1][0][1] = tap[1][1][2] = 1;
  return at::einsum("ary,bsx->yxabrs", {line, line})
      .reshape({9, 16})
      .to(options.device(), options.dtype().toScalarType());
}
// Which tap of a 3x3 on the large picture is read at [phase out][phase in][tap of two]; (9, 64), columns [a' b'][r s][a
// b].
Tensor PhaseTaps(const at::TensorOptions& options) {
  Tensor line = at::zeros({2, 2, 2, 3}, at::kFloat);
  auto tap = line.accessor<float, 4>();
  tap[0][1][0][0] = tap[0][0][0][1] = tap[0][1][1][2] = 1;
  tap[1][0][0][0] = tap[1][1][1][1] = tap[1][0][1][2] = 1;
  return at::einsum("pary,qbsx->yxpqrsab", {line, line})
      .reshape({9, 64})
      .to(options.device(), options.dtype().toScalarType());
}

// Made once per device and type: a copy from the host cannot be part of a CUDA graph.
const Tensor& Taps(Tensor (*make)(const at::TensorOptions&), const Tensor& like) {
  static std::mutex mutex;
  static std::map<std::tuple<void*, at::DeviceType, int, at::ScalarType>, Tensor> made;
  std::lock_guard lock(mutex);
  auto key = std::make_tuple(reinterpret_cast<void*>(make), like.device().type(), int(like.device().index()),
                             like.scalar_type());
  auto found = made.find(key);
  if (found == made.end()) found = made.emplace(key, make(like.options())).first;
  return found->second;
}

struct GrowMerging : torch::autograd::Function<GrowMerging> {
  static Tensor forward(AutogradContext* ctx, const Tensor& grow, const Tensor& conv, int64_t factor,
                        at::ScalarType type) {
    int64_t o = conv.size(0), c = conv.size(1), frames = grow.size(0) / c;
    Tensor wide = Wide(conv);
    Tensor rows = factor == 2 ? at::mm(wide.reshape({o * c, 9}), Taps(EnlargingTaps, wide)).view({o, c, 4, 4})
                              : wide.reshape({o, c, 1, 9});
    ctx->saved_data["type"] = conv.scalar_type();
    rows = rows.permute({2, 0, 3, 1}).reshape({-1, c});  // [phase][o][taps], c
    Tensor columns = Wide(grow).reshape({frames, c, -1});
    ctx->save_for_backward({rows, columns});
    ctx->saved_data["factor"] = factor;
    Tensor merged = at::bmm(rows.expand({frames, -1, -1}), columns).to(type);
    return AsWeight(merged, frames * o * factor * factor, factor == 2 ? 2 : 3);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    RefuseSecondDerivatives();
    variable_list saved = ctx->get_saved_variables();
    const Tensor &rows = saved[0], &columns = saved[1];
    int64_t factor = ctx->saved_data["factor"].toInt(), frames = columns.size(0), c = columns.size(1);
    Tensor g = AsRows(gradients[0], rows.scalar_type()).view({frames, rows.size(0), -1});
    Tensor grow = at::bmm(rows.t().expand({frames, -1, -1}), g).view({frames * c, -1, 1, 1});
    Tensor each = at::bmm(g, columns.transpose(1, 2));
    Tensor conv = frames == 1 ? each[0] : each.sum(0);
    if (factor == 2) {
      int64_t o = conv.size(0) / 16;
      conv = conv.view({4, o, 4, c}).permute({1, 3, 0, 2}).reshape({o * c, 16});
      conv = at::mm(conv, Taps(EnlargingTaps, conv).t()).view({o, c, 3, 3});
    } else {
      conv = conv.view({-1, 9, c}).transpose(1, 2).contiguous().view({-1, c, 3, 3});
    }
    at::ScalarType type = ctx->saved_data["type"].toScalarType();
    return {grow.to(type), conv.to(type), Tensor(), Tensor()};
  }
};

struct Grouping : torch::autograd::Function<Grouping> {
  static Tensor forward(AutogradContext* ctx, const Tensor& conv, int64_t frames, int64_t in, int64_t out,
                        at::ScalarType type) {
    int64_t o = conv.size(0), i = conv.size(1);
    Tensor all = at::empty({out, in, conv.size(2), conv.size(3)}, conv.options().dtype(type), kLast).zero_();
    for (int64_t k = 0; k < frames; ++k) all.narrow(0, k * o, o).narrow(1, k * i, i).copy_(conv);
    ctx->saved_data["o"] = o;
    ctx->saved_data["i"] = i;
    ctx->saved_data["frames"] = frames;
    ctx->saved_data["type"] = conv.scalar_type();
    return all;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    RefuseSecondDerivatives();
    int64_t o = ctx->saved_data["o"].toInt(), i = ctx->saved_data["i"].toInt();
    at::ScalarType type = ctx->saved_data["type"].toScalarType();
    Tensor sum;
    for (int64_t k = 0; k < ctx->saved_data["frames"].toInt(); ++k) {
      Tensor part = gradients[0].narrow(0, k * o, o).narrow(1, k * i, i);
      sum = sum.defined() ? sum.add_(part) : part.to(type).clone(at::MemoryFormat::Contiguous);
    }
    return {sum, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

struct ConvReluFunction : torch::autograd::Function<ConvReluFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                        at::IntArrayRef padding, int64_t clear) {
    Tensor y = ConvBiasRelu(x, weight, bias ? bias->to(x.scalar_type()) : Tensor(), padding);
    if (clear > 0) ClearEdges(y, clear);
    ctx->save_for_backward({x, weight, y});
    ctx->saved_data["padding"] = padding.vec();
    if (bias) ctx->saved_data["bias"] = bias->scalar_type();
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    RefuseSecondDerivatives();
    variable_list saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &y = saved[2];
    bool biased = ctx->saved_data.count("bias") > 0;
    Tensor g = gradients[0].contiguous(kLast), sums;
    if (biased) sums = SumsFor(y, y.size(1), 1);
    if (sums.defined()) {
      Shape shape{.frames = y.size(0), .channels = y.size(1), .height = y.size(2), .width = y.size(3)};
      g = Collect({.direct = g, .active = y}, shape, {}, sums[0]);
    } else {
      g = at::threshold_backward(g, y, 0);
    }
    ConvGradients d = ConvBackward(g, x, weight, ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                   biased && !sums.defined(), ctx->saved_data["padding"].toIntVector());
    Tensor bias = sums.defined() ? TotalOf(sums, y)[0] : d.bias;
    if (biased) bias = bias.to(ctx->saved_data["bias"].toScalarType());
    return {d.input, d.weight, bias, Tensor(), Tensor()};
  }
};

// Parameters of a run of blocks: for each block w1 b1 w2 b2 w3 b3.
constexpr size_t kEach = 6;

// In the compute type and channels-last; the last bias stays as it is where a kernel of ours adds it.
std::vector<Tensor> Prepare(const at::TensorList& parameters, const Tensor& like, bool own) {
  std::vector<Tensor> out, from, into;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& p = parameters[i];
    bool last_bias = i % kEach == 5;
    if (own && p.scalar_type() == at::kFloat && p.is_contiguous() && !last_bias) {
      Tensor packed = p.dim() == 4 ? EmptyLast(like, p.size(0), p.size(1), p.size(2), p.size(3))
                                   : at::empty_like(p, p.options().dtype(like.scalar_type()));
      from.push_back(p.detach());
      into.push_back(packed);
      out.push_back(packed);
    } else if (own && last_bias) {
      out.push_back(p.detach().to(at::kFloat));
    } else {
      out.push_back(p.dim() == 4 ? p.detach().to(like.scalar_type()).contiguous(kLast)
                                 : p.detach().to(like.scalar_type()));
    }
  }
  if (!from.empty()) kernels::Pack(from, into);
  return out;
}

// One past frame per clip, from the first half of the last frames of each clip.
Tensor LastFrames(const Tensor& cat, const Shape& shape) {
  return cat.unflatten(0, {shape.clips, shape.frames}).select(1, shape.frames - 1).narrow(1, 0, shape.channels);
}

// saved: [cat, h1, h2] of each block, then the output; null: nothing is kept.
Tensor Forward(const std::vector<Tensor>& p, const Tensor& z, Layout layout, const Shape& shape, int64_t out_group,
               bool own, const std::vector<taehv::LayerMemory*>& memories, std::vector<Tensor>* saved) {
  auto first = [&](size_t block) {
    if (memories.empty() || !memories[block]->frames.defined()) return Tensor();
    return memories[block]->frames.flatten(0, 1).to(z.scalar_type()).contiguous(kLast);
  };
  size_t blocks = p.size() / kEach;
  Tensor cat = WithPast(z, layout, shape, {}, first(0)), y;
  for (size_t b = 0; b < blocks; ++b) {
    const Tensor* w = &p[b * kEach];
    if (!memories.empty()) memories[b]->frames = LastFrames(cat, shape).unsqueeze(1).clone();
    Tensor h1 = ConvBiasRelu(cat, w[0], w[1]), h2 = ConvBiasRelu(h1, w[2], w[3]);
    if (saved != nullptr) saved->insert(saved->end(), {cat, h1, h2});
    h1 = Tensor();
    After after{.bias = own ? w[5] : Tensor(), .residual = cat, .relu = true};
    Tensor h3 = at::conv2d(h2, w[4], own ? Tensor() : w[5], 1, 1);
    h2 = Tensor();
    if (b + 1 < blocks) {
      cat = WithPast(h3, {}, shape, after, first(b + 1));
    } else {
      y = Regroup(h3, {}, shape, after, out_group);
    }
  }
  if (saved != nullptr) saved->push_back(y);
  return y;
}

struct Blocks : torch::autograd::Function<Blocks> {
  static Tensor forward(AutogradContext* ctx, const Tensor& z, const at::TensorList& parameters, const Layout& layout,
                        const Shape& shape, int64_t out_group) {
    bool own = kernels::Usable(z, shape.channels);
    std::vector<Tensor> packed = Prepare(parameters, z, own), saved;
    Tensor y = Forward(packed, z, layout, shape, out_group, own, {}, &saved);
    saved.insert(saved.end(), packed.begin(), packed.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["type"] = parameters[0].scalar_type();
    ctx->saved_data["sizes"] = std::vector<int64_t>{layout.phases, layout.group,   out_group,    shape.clips,
                                                    shape.frames,  shape.channels, shape.height, shape.width};
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    RefuseSecondDerivatives();
    variable_list saved = ctx->get_saved_variables();
    std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    Layout layout{sizes[0] != 0, sizes[1]};
    int64_t out_group = sizes[2];
    Shape shape{sizes[3], sizes[4], sizes[5], sizes[6], sizes[7]};
    size_t blocks = saved.size() / (3 + kEach);
    bool learn = ctx->needs_input_grad(1);
    const Tensor *packed = &saved[3 * blocks + 1], &y = saved[3 * blocks];

    Tensor sums = SumsFor(y, shape.channels, int64_t(3 * blocks));  // of the biases, in the order of backward
    bool own = sums.defined();
    int64_t next_sum = 0;
    auto sum = [&] { return own ? sums[next_sum++] : Tensor(); };
    std::vector<Tensor> narrow(kEach * blocks);
    Tensor g3 = Collect(
        {.direct = gradients[0].contiguous(kLast), .direct_group = out_group, .active = y, .active_group = out_group},
        shape, {}, sum());
    Tensor input;
    for (size_t b = blocks; b-- > 0;) {
      const Tensor &cat = saved[3 * b], &h1 = saved[3 * b + 1], &h2 = saved[3 * b + 2], *w = packed + kEach * b;
      ConvGradients third = ConvBackward(g3, h2, w[4], true, learn, learn && !own);
      Tensor g2 = Collect({.direct = third.input, .overwrite = true, .active = h2}, shape, {}, sum());
      ConvGradients second = ConvBackward(g2, h1, w[2], true, learn, learn && !own);
      Tensor g1 = Collect({.direct = second.input, .overwrite = true, .active = h1}, shape, {}, sum());
      ConvGradients first = ConvBackward(g1, cat, w[0], true, learn, learn && !own);
      narrow[kEach * b] = first.weight, narrow[kEach * b + 1] = first.bias;
      narrow[kEach * b + 2] = second.weight, narrow[kEach * b + 3] = second.bias;
      narrow[kEach * b + 4] = third.weight, narrow[kEach * b + 5] = third.bias;
      Arriving joined{.direct = g3, .both = first.input};
      if (b > 0) {
        joined.overwrite = true;
        joined.active = cat;
        joined.active_with_past = true;
        g3 = Collect(joined, shape, {}, sum());
      } else if (ctx->needs_input_grad(0)) {
        input = Collect(joined, shape, layout);
      }
    }
    Tensor biases = own && learn ? TotalOf(sums, y) : Tensor();  // one kernel for all of them
    return WithParameters(ctx, std::move(input), std::move(narrow), biases);
  }

  static variable_list WithParameters(AutogradContext* ctx, Tensor input, std::vector<Tensor> narrow, Tensor biases) {
    at::ScalarType type = ctx->saved_data["type"].toScalarType();
    variable_list out{std::move(input)};
    std::vector<Tensor> from, into;
    int64_t blocks = int64_t(narrow.size() / kEach);
    if (!narrow[0].defined()) {  // frozen
      out.resize(1 + narrow.size() + 3);
      return out;
    }
    for (int64_t i = 0; i < int64_t(narrow.size()); ++i) {
      const Tensor& g = narrow[i];
      int64_t block = i / int64_t(kEach), place = i % int64_t(kEach);
      if (place % 2 == 1) {  // backward met the third bias of a block first, and the last block first
        Tensor b = biases.defined() ? biases[(blocks - 1 - block) * 3 + (2 - place / 2)] : g;
        out.push_back(b.to(type));
      } else if (biases.defined() && type == at::kFloat && g.is_contiguous(kLast)) {
        from.push_back(g);
        into.push_back(at::empty(g.sizes(), g.options().dtype(type)));
        out.push_back(into.back());
      } else {
        out.push_back(g.to(type).contiguous());
      }
    }
    if (!from.empty()) kernels::Unpack(from, into);
    out.resize(out.size() + 3);  // layout, shape, out_group
    return out;
  }
};

}  // namespace

Tensor MergePool(const Tensor& pool, const Tensor& conv, at::ScalarType type) {
  return PoolMerging::apply(pool, conv, type);
}

Tensor MergeGrow(const Tensor& grow, const Tensor& conv, int64_t factor, at::ScalarType type) {
  return GrowMerging::apply(grow, conv, factor, type);
}

Tensor PhasesOf(const Tensor& conv) {
  int64_t o = conv.size(0), c = conv.size(1);
  Tensor wide = Wide(conv);
  Tensor all = at::mm(wide.reshape({o * c, 9}), Taps(PhaseTaps, wide)).view({o, c, 4, 2, 2, 4});
  return all.permute({2, 0, 5, 1, 3, 4}).reshape({4 * o, 4 * c, 2, 2});
}

Tensor ColumnsOf(const Tensor& conv, int64_t channels) {
  Tensor side = conv.permute({0, 3, 1, 2}).flatten(1, 2).unsqueeze(3);  // (o, 3 * i, 3, 1)
  return at::constant_pad_nd(side, {0, 0, 0, 0, 0, channels - side.size(1)}).contiguous(kLast);
}

Tensor Columns(const Tensor& x, int64_t channels, at::ScalarType type) {
  int64_t c = x.size(1), w = x.size(3);
  Tensor out = at::empty({x.size(0), channels, x.size(2), w}, x.options().dtype(type), kLast);
  if (channels > 3 * c) out.narrow(1, 3 * c, channels - 3 * c).zero_();
  for (int64_t tap = 0; tap < 3; ++tap) {
    Tensor to = out.narrow(1, tap * c, c);
    int64_t from = tap - 1, lost = from == 0 ? 0 : 1;
    to.narrow(3, std::max<int64_t>(0, -from), w - lost).copy_(x.narrow(3, std::max<int64_t>(0, from), w - lost));
    if (lost > 0) to.select(3, from < 0 ? 0 : w - 1).zero_();
  }
  return out;
}

Tensor ForGroup(const Tensor& conv, int64_t frames, int64_t in, int64_t out, at::ScalarType type) {
  return Grouping::apply(conv, frames, in, out, type);
}

Tensor ConvRelu(const Tensor& x, const Tensor& weight, const Tensor& bias, at::IntArrayRef padding, int64_t clear) {
  return ConvReluFunction::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, padding, clear);
}

Tensor RunBlocks(const std::vector<taehv::MemBlock*>& blocks, const Tensor& z, Layout layout, const Shape& shape,
                 int64_t out_group, const std::vector<taehv::LayerMemory*>& memories) {
  std::vector<Tensor> parameters;
  bool learning = z.requires_grad();
  for (taehv::MemBlock* block : blocks) {
    for (int i : {0, 2, 4}) {
      taehv::Conv& conv = block->conv->ConvAt(i);
      for (const Tensor& p : {conv.weight, conv.bias}) {
        parameters.push_back(p);
        learning |= p.requires_grad();
      }
    }
  }
  if (at::GradMode::is_enabled() && learning)
    return Blocks::apply(z, at::TensorList(parameters), layout, shape, out_group);
  bool own = kernels::Usable(z, shape.channels);
  return Forward(Prepare(parameters, z, own), z, layout, shape, out_group, own, memories, nullptr);
}

}  // namespace lockstep::models::fused
