#include "models/linear_cross_entropy.h"

#include <torch/autograd.h>

#include <algorithm>

#include "models/decoder_kernels.h"
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

// The losses of some rows and, where wanted, the gradient of their sum by the logits in the type of `hidden`.
struct Rows {
  at::Tensor loss;  // their sum, float32
  at::Tensor d_logits;
  at::Tensor used;  // which rows count, where the gradients of the others are not 0 already
};

Rows ComposedRows(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels, bool gradients) {
  const at::Tensor label = labels.unsqueeze(1), used = label >= 0, index = label.clamp_min(0);
  at::Tensor log = at::log_softmax(at::mm(hidden, weight.t()).to(at::kFloat), 1);
  const at::Tensor picked = log.gather(1, index);
  Rows rows{at::where(used, picked, 0.0).sum().neg_(), {}, used};
  if (!gradients) return rows;
  // softmax - onehot, rounded once.
  const at::ScalarType type = hidden.scalar_type();
  rows.d_logits = type == at::kFloat ? log.exp_() : at::empty(log.sizes(), log.options().dtype(type));
  if (type != at::kFloat) at::exp_out(rows.d_logits, log);
  rows.d_logits.scatter_(1, index, picked.expm1().to(type));
  return rows;
}

Rows FusedRows(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels, int64_t vocabulary,
               bool gradients) {
  const at::Tensor logits = at::mm(hidden, weight.t());
  const at::Tensor losses = decoder::kernels::CrossEntropy(logits, labels, vocabulary, gradients);
  return {losses.sum(), gradients ? logits : at::Tensor(), {}};
}

// In `type`; on a GPU in half precision with rows of zeros up to a multiple of 64, without which its matrix products
// take eight times as long.
at::Tensor HeadIn(const at::Tensor& weight, at::ScalarType type, bool fused) {
  const int64_t rows = weight.size(0), padded = (rows + 63) / 64 * 64;
  if (!fused || padded == rows) return weight.detach().to(type);
  const at::Tensor head = at::empty({padded, weight.size(1)}, weight.options().dtype(type).requires_grad(false));
  head.narrow(0, 0, rows).copy_(weight.detach());
  head.narrow(0, rows, padded - rows).zero_();
  return head;
}

// Gradients are kept as sums over rows; backward divides them by their number, in the pass that it makes anyway. So
// float16 neither underflows here nor before the loss scale is applied.
struct LossFunction : torch::autograd::Function<LossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& labels, int64_t rows, int64_t type, bool hidden_needs,
                            bool weight_needs) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto compute = static_cast<at::ScalarType>(type);
    const bool fused = decoder::kernels::Usable(hidden.device(), compute, compute, 8);
    const at::Tensor w = HeadIn(weight, compute, fused);
    const int64_t vocabulary = weight.size(0);
    const bool gradients = hidden_needs || weight_needs;
    const at::Tensor count = (labels >= 0).sum().clamp_min(1).to(at::kFloat);
    at::Tensor total = at::zeros({}, hidden.options().dtype(at::kFloat));
    at::Tensor d_hidden = hidden_needs ? at::empty_like(hidden) : at::Tensor();
    at::Tensor d_weight = weight_needs ? at::zeros(w.sizes(), w.options().dtype(at::kFloat)) : at::Tensor();
    for (int64_t begin = 0; begin < hidden.size(0); begin += rows) {
      const int64_t size = std::min(rows, hidden.size(0) - begin);
      const at::Tensor h = hidden.narrow(0, begin, size).to(compute);
      const at::Tensor label = labels.narrow(0, begin, size);
      const Rows part = fused ? FusedRows(h, w, label, vocabulary, gradients) : ComposedRows(h, w, label, gradients);
      total.add_(part.loss);
      const auto counted = [&](const at::Tensor& x) { return part.used.defined() ? x * part.used : x; };
      if (hidden_needs) d_hidden.narrow(0, begin, size).copy_(counted(at::mm(part.d_logits, w)));
      if (weight_needs) AddWideProduct(d_weight, part.d_logits.t(), counted(h));
    }
    if (weight_needs) d_weight = d_weight.narrow(0, 0, vocabulary);
    context->save_for_backward({count});
    if (hidden_needs) context->saved_data["hidden"] = d_hidden;
    if (weight_needs) context->saved_data["weight"] = d_weight;
    context->saved_data["type"] = static_cast<int64_t>(weight.scalar_type());
    return total.div_(count);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::NoGradGuard no_grad;
    const at::Tensor scale = gradients[0] / context->get_saved_variables()[0];
    auto& saved = context->saved_data;
    TORCH_CHECK(saved.count("done") == 0, "backward of LinearCrossEntropy runs once on a GPU");
    variable_list out(7);
    // In float32: a scalar of half precision would round the scale of all gradients. On a GPU in place, where a second
    // copy would be the peak of the step's memory.
    const auto take = [&](const char* name) {
      const at::Tensor gradient = saved.at(name).toTensor();
      if (!gradient.is_cuda()) return (gradient.to(at::kFloat) * scale).to(gradient.scalar_type());
      saved.erase(name);
      return gradient.scalar_type() == at::kFloat ? gradient.mul_(scale)
                                                  : gradient.copy_(gradient.to(at::kFloat).mul_(scale));
    };
    if (saved.count("hidden") > 0) out[0] = take("hidden");
    if (saved.count("weight") > 0) out[1] = take("weight").to(static_cast<at::ScalarType>(saved.at("type").toInt()));
    if (scale.is_cuda()) saved["done"] = true;
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
    // Chunks of equal size, in whole tiles of the matrix products.
    const int64_t logits = hidden.is_cuda() ? int64_t{1} << 28 : int64_t{1} << 24;
    const int64_t most = std::max<int64_t>(16, logits / weight.size(0));
    const int64_t chunks = std::max<int64_t>(1, (hidden.size(0) + most - 1) / most);
    rows = (hidden.size(0) + chunks - 1) / chunks;
    if (rows > 128) rows = (rows + 127) / 128 * 128;
  }
  const bool learns = at::GradMode::is_enabled();
  return LossFunction::apply(hidden, weight, labels, rows, static_cast<int64_t>(decoder::ComputeType(hidden)),
                             learns && hidden.requires_grad(), learns && weight.requires_grad());
}

}  // namespace lockstep::models
