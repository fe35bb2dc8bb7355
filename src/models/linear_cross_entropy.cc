#include "models/linear_cross_entropy.h"

#include <torch/autograd.h>

#include <algorithm>

#include "models/decoder_ops.h"

namespace lockstep::models {
namespace {

using torch::autograd::AutogradContext, torch::autograd::variable_list;

// The weight's gradient so far plus dlogits^T x hidden, in float32.
void AddWideProduct(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() == sum.scalar_type()) {
    sum.addmm_(a, b);
  } else if (a.is_cuda()) {
    at::addmm_out(sum, sum, a, b, sum.scalar_type());  // half-precision factors, sum and accumulation in float32
  } else {
    sum.add_(at::mm(a, b));
  }
}

// Logits in float32; CUDA's matrix products write them so without a pass of their own.
at::Tensor WideLogits(const at::Tensor& hidden, const at::Tensor& weight) {
  if (hidden.is_cuda() && hidden.scalar_type() != at::kFloat) return at::mm(hidden, weight.t(), at::kFloat);
  return at::mm(hidden, weight.t()).to(at::kFloat);
}

// Gradients are kept as sums over rows; backward divides them by their number, in the pass that it makes anyway. So
// float16 neither underflows here nor before the loss scale is applied.
struct LossFunction : torch::autograd::Function<LossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& labels, int64_t rows, int64_t type, bool hidden_needs,
                            bool weight_needs) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto compute = static_cast<at::ScalarType>(type);
    const at::Tensor w = weight.to(compute);
    const at::Tensor count = (labels >= 0).sum().clamp_min(1).to(at::kFloat);
    at::Tensor total = at::zeros({}, hidden.options().dtype(at::kFloat));
    at::Tensor d_hidden = hidden_needs ? at::empty_like(hidden) : at::Tensor();
    at::Tensor d_weight = weight_needs ? at::zeros(weight.sizes(), weight.options().dtype(at::kFloat)) : at::Tensor();
    for (int64_t begin = 0; begin < hidden.size(0); begin += rows) {
      const int64_t size = std::min(rows, hidden.size(0) - begin);
      const at::Tensor h = hidden.narrow(0, begin, size).to(compute);
      const at::Tensor label = labels.narrow(0, begin, size).unsqueeze(1);
      const at::Tensor used = label >= 0;
      const at::Tensor index = label.clamp_min(0);
      at::Tensor log = at::log_softmax(WideLogits(h, w), 1);
      const at::Tensor picked = log.gather(1, index);
      total.sub_(at::where(used, picked, 0.0).sum());
      if (!hidden_needs && !weight_needs) continue;
      // softmax - onehot, rounded once.
      at::Tensor d_logits = compute == at::kFloat ? log.exp_() : at::empty(log.sizes(), log.options().dtype(compute));
      if (compute != at::kFloat) at::exp_out(d_logits, log);
      d_logits.scatter_(1, index, picked.expm1().to(compute));
      if (hidden_needs) d_hidden.narrow(0, begin, size).copy_(at::mm(d_logits, w).mul_(used));
      if (weight_needs) AddWideProduct(d_weight, d_logits.t(), h * used);
    }
    context->save_for_backward({d_hidden, d_weight, count});
    context->saved_data["weight"] = static_cast<int64_t>(weight.scalar_type());
    return total.div_(count);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const auto saved = context->get_saved_variables();
    const at::Tensor scale = gradients[0] / saved[2];
    variable_list out(7);
    // In float32: a scalar of half precision would round the scale of all gradients.
    if (saved[0].defined()) out[0] = saved[0].to(at::kFloat).mul(scale).to(saved[0].scalar_type());
    if (saved[1].defined()) {
      out[1] = (saved[1] * scale).to(static_cast<at::ScalarType>(context->saved_data["weight"].toInt()));
    }
    return out;
  }
};

}  // namespace

at::Tensor LinearCrossEntropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                              int64_t rows) {
  TORCH_CHECK(hidden.dim() == 2 && labels.dim() == 1 && hidden.size(0) == labels.size(0),
              "expected rows [N, width] and ", "labels [N], found ", hidden.sizes(), " and ", labels.sizes());
  TORCH_CHECK(weight.dim() == 2 && weight.size(1) == hidden.size(1), "expected a weight [vocabulary, ", hidden.size(1),
              "], found ", weight.sizes());
  if (rows <= 0) {
    const int64_t logits = hidden.is_cuda() ? int64_t{1} << 28 : int64_t{1} << 24;
    rows = std::max<int64_t>(16, logits / weight.size(0));
  }
  const bool learns = at::GradMode::is_enabled();
  return LossFunction::apply(hidden, weight, labels, rows, static_cast<int64_t>(decoder::ComputeType(hidden)),
                             learns && hidden.requires_grad(), learns && weight.requires_grad());
}

}  // namespace lockstep::models
