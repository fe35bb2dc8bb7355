#include "models/vrt_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace lockstep::models::vrt {
namespace {

using at::Tensor;

constexpr int64_t kAttentionBytes = 4 << 20;  // of the attention matrix that exists at a time

// A permutation of rows, but for those that are padding: its gradient is the inverse one.
struct RowsFunction : torch::autograd::Function<RowsFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& index,
                        const Tensor& inverse, const Tensor& padding) {
    context->save_for_backward({inverse});
    const Tensor out = at::index_select(x, 0, index);
    if (padding.numel() > 0) out.index_fill_(0, padding, 0);
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {at::index_select(gradients[0], 0, context->get_saved_variables()[0]), Tensor(), Tensor(), Tensor()};
  }
};

// The other way; rows that are padding are dropped, and their gradient is zero.
struct RowsBackFunction : torch::autograd::Function<RowsBackFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& index,
                        const Tensor& inverse, const Tensor& padding) {
    context->save_for_backward({inverse, padding});
    return at::index_select(x, 0, index);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor out = at::index_select(gradients[0], 0, saved[0]);
    if (saved[1].numel() > 0) out.index_fill_(0, saved[1], 0);
    return {out, Tensor(), Tensor(), Tensor()};
  }
};

Tensor NoPadding(const WindowPlan& plan) {
  return plan.padding.defined() ? plan.padding : at::empty({0}, plan.gather.options());
}

// table[index[i], head] -> out[head, i]. On the CPU PyTorch's index_add, the gradient of index_select, takes rows one
// by one: longer than the attention itself.
struct PositionBiasFunction : torch::autograd::Function<PositionBiasFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& table, const Tensor& index) {
    context->save_for_backward({index});
    context->saved_data["rows"] = table.size(0);
    return at::index_select(table.t().contiguous(), 1, index);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Tensor index = context->get_saved_variables()[0], gradient = gradients[0].contiguous();
    const int64_t heads = gradient.size(0), count = gradient.size(1), rows = context->saved_data["rows"].toInt();
    const Tensor sum = at::zeros({heads, rows}, gradient.options());
    if (!gradient.is_cpu() || (gradient.scalar_type() != at::kFloat && gradient.scalar_type() != at::kDouble)) {
      sum.index_add_(1, index, gradient);
    } else {
      AT_DISPATCH_FLOATING_TYPES(gradient.scalar_type(), "PositionBias", [&] {
        const auto* from = gradient.data_ptr<scalar_t>();
        const auto* row = index.data_ptr<int64_t>();
        auto* to = sum.mutable_data_ptr<scalar_t>();
        for (int64_t head = 0; head < heads; ++head) {
          for (int64_t i = 0; i < count; ++i) to[head * rows + row[i]] += from[head * count + i];
        }
      });
    }
    return {sum.t().contiguous(), Tensor()};
  }
};

// Windows [begin, begin + count) of all, as matrices.
struct AttentionPart {
  int64_t begin, count;
  Tensor Of(const Tensor& x) const {
    return x.narrow(0, begin, count).contiguous().view({count * x.size(1), x.size(2), x.size(3)});
  }
  // Bias and mask of each window, in memory of its own: the products are added to it.
  Tensor Scores(const Tensor& q, const Tensor& bias, const Tensor& mask) const {
    const int64_t heads = q.size(1), n = q.size(2);
    Tensor scores = at::empty({count, heads, n, n}, q.options());
    if (mask.numel() == 0 && bias.numel() == 0) return scores.zero_();
    if (mask.numel() == 0) return scores.copy_(bias.unsqueeze(0).expand_as(scores));
    for (int64_t i = 0; i < count;) {  // masks repeat with the clips
      const int64_t first = (begin + i) % mask.size(0), here = std::min(count - i, mask.size(0) - first);
      Tensor to = scores.narrow(0, i, here);
      const Tensor own = mask.narrow(0, first, here).unsqueeze(1);
      if (bias.numel() > 0) {
        at::add_out(to, own.expand_as(to), bias.unsqueeze(0));
      } else {
        to.copy_(own.expand_as(to));
      }
      i += here;
    }
    return scores;
  }
};

template <typename Work>
void ForEachPart(const Tensor& q, const Work& work) {
  const int64_t windows = q.size(0), matrix = q.size(1) * q.size(2) * q.size(2) * q.element_size();
  const int64_t each = std::clamp<int64_t>(kAttentionBytes / matrix, 1, windows);
  for (int64_t begin = 0; begin < windows; begin += each) work(AttentionPart{begin, std::min(each, windows - begin)});
}

// Autocast has no say in here: everything has the type of q.
struct AttendFunction : torch::autograd::Function<AttendFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& bias, const Tensor& mask, double scale) {
    const Tensor out = at::empty(q.sizes(), q.options());
    ForEachPart(q, [&](const AttentionPart& part) {
      const Tensor scores = part.Scores(q, bias, mask).flatten(0, 1);
      scores.baddbmm_(part.Of(q), part.Of(k).transpose(1, 2), 1, scale);
      Tensor to = out.narrow(0, part.begin, part.count).flatten(0, 1);
      at::bmm_out(to, at::_softmax(scores, -1, /*half_to_float=*/false), part.Of(v));
    });
    context->save_for_backward({q, k, v, bias, mask, out});
    context->saved_data["scale"] = scale;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &bias = saved[3], &mask = saved[4], &out = saved[5];
    const double scale = context->saved_data["scale"].toDouble();
    const Tensor grad_q = at::empty(q.sizes(), q.options()), grad_k = at::empty(q.sizes(), q.options()),
                 grad_v = at::empty(q.sizes(), q.options());
    Tensor grad_bias;
    if (bias.numel() > 0) grad_bias = at::zeros(bias.sizes(), bias.options());
    ForEachPart(q, [&](const AttentionPart& part) {
      const auto to = [&](const Tensor& x) { return x.narrow(0, part.begin, part.count).flatten(0, 1); };
      const Tensor own_q = part.Of(q), own_k = part.Of(k), own_v = part.Of(v), grad = part.Of(gradients[0]);
      Tensor scores = part.Scores(q, bias, mask).flatten(0, 1);
      scores.baddbmm_(own_q, own_k.transpose(1, 2), 1, scale);
      const Tensor weights = at::_softmax(scores, -1, /*half_to_float=*/false);
      Tensor to_q = to(grad_q), to_k = to(grad_k), to_v = to(grad_v);
      at::bmm_out(to_v, weights.transpose(1, 2), grad);
      const Tensor mean = (grad * part.Of(out)).sum(-1, /*keepdim=*/true);
      at::bmm_out(scores, grad, own_v.transpose(1, 2));
      scores.sub_(mean).mul_(weights);  // the gradient of the scores
      if (grad_bias.defined()) grad_bias.add_(scores.view({part.count, -1, q.size(2), q.size(2)}).sum(0));
      at::bmm_out(to_q, scores, own_k);
      at::bmm_out(to_k, scores.transpose(1, 2), own_q);
    });
    return {grad_q.mul_(scale), grad_k.mul_(scale), grad_v, grad_bias, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor ToWindows(const Tensor& x, const WindowPlan& plan) {
  return RowsFunction::apply(x.reshape({-1, x.size(-1)}), plan.gather, plan.scatter, NoPadding(plan))
      .view({-1, plan.tokens, x.size(-1)});
}

Tensor FromWindows(const Tensor& windows, const WindowPlan& plan, at::IntArrayRef sizes) {
  return RowsBackFunction::apply(windows.reshape({-1, windows.size(-1)}), plan.scatter, plan.gather, NoPadding(plan))
      .view(sizes);
}

Tensor PositionBias(const Tensor& table, const Tensor& index, int64_t tokens) {
  return PositionBiasFunction::apply(table, index).view({table.size(1), tokens, tokens});
}

Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias, const Tensor& mask, double scale) {
  const Tensor none = at::empty({0}, q.options());
  const auto given = [&](const Tensor& x) { return x.defined() ? x.to(q.scalar_type()) : none; };
  return AttendFunction::apply(q, k, v, given(bias), given(mask), scale);
}

}  // namespace lockstep::models::vrt
