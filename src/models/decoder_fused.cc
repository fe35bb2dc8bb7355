#include "models/decoder_fused.h"

#include <torch/autograd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/decoder_kernels.h"
#include "models/fused_function.h"

namespace lockstep::models::decoder {
namespace {

using torch::autograd::AutogradContext, torch::autograd::variable_list;

// The parameters of a layer, in the order of the function's arguments.
enum Slot { kNorm1, kQ, kK, kV, kO, kNorm2, kGate, kUp, kDown, kQBias, kKBias, kVBias, kSlots };

std::vector<at::Tensor> ParametersOf(const Layer& layer) {
  const Attention& a = *layer.self_attn;
  const Mlp& m = *layer.mlp;
  std::vector<at::Tensor> list = {layer.input_layernorm->weight,
                                  a.q_proj->weight,
                                  a.k_proj->weight,
                                  a.v_proj->weight,
                                  a.o_proj->weight,
                                  layer.post_attention_layernorm->weight,
                                  m.gate_proj->weight,
                                  m.up_proj->weight,
                                  m.down_proj->weight};
  if (a.q_proj->bias.defined()) list.insert(list.end(), {a.q_proj->bias, a.k_proj->bias, a.v_proj->bias});
  return list;
}

struct LayerShape {
  int64_t head_size = 0;
  double epsilon = 0;
  at::ScalarType type = at::kBFloat16;  // of matrix products
  bool in_place = false;                // gradients are added to those of the parameters
  bool keeps_gate_up = true;            // gate and up; else they are computed again
  AttentionPlan plan;
  at::Tensor cos, sin;  // [rows or length, half]
};

at::Tensor Cast(const at::Tensor& x, at::ScalarType type) { return x.detach().to(type); }

// a^T b, the gradient of a weight of `type`.
at::Tensor WeightGradient(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return type == a.scalar_type() ? at::mm(a.t(), b) : at::mm(a.t(), b, type);
}

// sum += a b, rounded once.
void AddProduct(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (sum.scalar_type() == a.scalar_type()) {
    sum.addmm_(a, b);
  } else {
    at::addmm_out(sum, sum, a, b, sum.scalar_type());
  }
}

// a^T b as the gradient of `parameter`: added to what it has already where that is allowed (`in_place`), which saves
// autograd's own pass over both, else for autograd to add.
at::Tensor AddGradient(const at::Tensor& parameter, bool in_place, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor& so_far = parameter.grad();
  if (!in_place || !so_far.defined() || !so_far.is_contiguous()) return WeightGradient(a, b, parameter.scalar_type());
  AddProduct(so_far, a.t(), b);
  return {};
}

struct Qkv {
  at::Tensor q, k, v;  // [B, T, heads, size], views of one
};

Qkv SplitHeads(const at::Tensor& all, int64_t batch, int64_t heads, int64_t kv_heads, int64_t size) {
  const at::Tensor x = all.view({batch, -1, heads + 2 * kv_heads, size});
  return {x.narrow(2, 0, heads), x.narrow(2, heads, kv_heads), x.narrow(2, heads + kv_heads, kv_heads)};
}

struct LayerFunction : torch::autograd::Function<LayerFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, at::TensorList p,
                            const std::shared_ptr<const LayerShape>& shape) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::ScalarType type = shape->type;
    const int64_t batch = input.size(0), size = shape->head_size;
    const int64_t heads = p[kQ].size(0) / size, kv_heads = p[kK].size(0) / size;
    const at::Tensor x = input.detach().flatten(0, 1).contiguous();

    kernels::Normed one = kernels::Norm(x, {}, p[kNorm1], shape->epsilon, type, false);
    const at::Tensor wqkv = CatRows({p[kQ], p[kK], p[kV]}, type).t();
    const at::Tensor qkv = p.size() > kQBias
                               ? at::addmm(CatRows({p[kQBias], p[kKBias], p[kVBias]}, type), one.normed, wqkv)
                               : at::mm(one.normed, wqkv);
    one.normed.reset();
    kernels::Rotate(qkv, shape->cos, shape->sin, heads + kv_heads, size);
    const Qkv at = SplitHeads(qkv, batch, heads, kv_heads, size);
    const KeptAttention kept = AttendForward(at.q, at.k, at.v, shape->plan);
    const at::Tensor attended = at::mm(kept.out.view({x.size(0), -1}), Cast(p[kO], type).t());

    kernels::Normed two = kernels::Norm(x, attended, p[kNorm2], shape->epsilon, type, true);
    const at::Tensor gate_up = at::mm(two.normed, CatRows({p[kGate], p[kUp]}, type).t());
    two.normed.reset();
    AddProduct(two.sum, kernels::SwiGlu(gate_up), Cast(p[kDown], type).t());

    variable_list saved = {input};
    saved.insert(saved.end(), p.begin(), p.end());
    context->save_for_backward(std::move(saved));
    auto& data = context->saved_data;
    data["inverse1"] = one.inverse, data["inverse2"] = two.inverse, data["qkv"] = qkv, data["out"] = kept.out;
    data["lse"] = kept.lse;
    if (shape->keeps_gate_up) data["gate_up"] = gate_up;
    if (kept.seed.defined()) data["seed"] = kept.seed, data["offset"] = kept.offset;
    KeepShape(context, shape);
    return two.sum.view(input.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::NoGradGuard no_grad;
    const auto shape = KeptShape<LayerShape>(context);
    const variable_list saved = context->get_saved_variables();
    const at::TensorList p(saved.data() + 1, saved.size() - 1);
    const at::ScalarType type = shape->type, wide = p[kQ].scalar_type();
    const int64_t batch = saved[0].size(0), size = shape->head_size;
    const int64_t heads = p[kQ].size(0) / size, kv_heads = p[kK].size(0) / size;
    const at::Tensor x = saved[0].detach().flatten(0, 1).contiguous();
    variable_list out(1 + p.size() + 1);
    const auto gradient = [&](Slot slot) -> at::Tensor& { return out[1 + slot]; };

    const at::Tensor d_result = gradients[0].flatten(0, 1).contiguous();
    at::Tensor d_narrow = d_result.to(type);
    KeptAttention kept{TakeKept(context, "out"), TakeKept(context, "lse"), {}, {}};
    if (context->saved_data.count("seed") > 0) {
      kept.seed = TakeKept(context, "seed"), kept.offset = TakeKept(context, "offset");
    }
    // A small matrix product, once more, instead of a twentieth of what a layer keeps.
    const at::Tensor attended = at::mm(kept.out.view({x.size(0), -1}), Cast(p[kO], type).t());
    const at::Tensor gate_up_weight = CatRows({p[kGate], p[kUp]}, type);
    at::Tensor gate_up;
    if (shape->keeps_gate_up) {
      gate_up = TakeKept(context, "gate_up");
    } else {
      gate_up = at::mm(kernels::Norm(x, attended, p[kNorm2], shape->epsilon, type, false).normed, gate_up_weight.t());
    }
    {
      const at::Tensor hidden = at::mm(d_narrow, Cast(p[kDown], type));
      kernels::SwiGluBackward(gate_up, hidden);  // now the gradient of gate and up, and what SwiGLU gave in forward
      gradient(kDown) = AddGradient(p[kDown], shape->in_place, d_narrow, hidden);
    }
    at::Tensor d_normed = at::mm(gate_up, gate_up_weight);
    at::Tensor d_sum;
    {
      const kernels::NormGradients norm =
          kernels::NormBackward(d_normed, x, attended, TakeKept(context, "inverse2"), p[kNorm2], d_result,
                                /*with_narrow=*/true, /*with_normed=*/true);
      const int64_t half = p[kGate].size(0);
      gradient(kGate) = AddGradient(p[kGate], shape->in_place, gate_up.narrow(1, 0, half), norm.normed);
      gradient(kUp) = AddGradient(p[kUp], shape->in_place, gate_up.narrow(1, half, half), norm.normed);
      gradient(kNorm2) = norm.weight.to(wide);
      d_sum = norm.dx, d_narrow = norm.narrow;
    }
    gate_up.reset();
    at::Tensor d_qkv;
    {
      gradient(kO) = AddGradient(p[kO], shape->in_place, d_narrow, kept.out.view({x.size(0), -1}));
      const at::Tensor d_out = at::mm(d_narrow, Cast(p[kO], type)).view({batch, -1, heads, size});
      const at::Tensor qkv = TakeKept(context, "qkv");
      const Qkv at = SplitHeads(qkv, batch, heads, kv_heads, size);
      const auto [dq, dk, dv] = AttendBackward(d_out, at.q, at.k, at.v, kept, shape->plan);
      d_qkv = kernels::RotateBack(dq, dk, dv, shape->cos, shape->sin);
    }
    d_normed = at::mm(d_qkv, CatRows({p[kQ], p[kK], p[kV]}, type));
    const kernels::NormGradients norm = kernels::NormBackward(d_normed, x, {}, TakeKept(context, "inverse1"), p[kNorm1],
                                                              d_sum, /*with_narrow=*/false, /*with_normed=*/true);
    const at::Tensor d_weight = WeightGradient(d_qkv, norm.normed, wide);
    const at::Tensor d_bias = p.size() > kQBias ? d_qkv.sum({0}, false, at::kFloat).to(wide) : at::Tensor();
    int64_t row = 0;
    for (const int i : {0, 1, 2}) {
      const int64_t rows = p[kQ + i].size(0);
      gradient(static_cast<Slot>(kQ + i)) = d_weight.narrow(0, row, rows);
      if (d_bias.defined()) gradient(static_cast<Slot>(kQBias + i)) = d_bias.narrow(0, row, rows);
      row += rows;
    }
    gradient(kNorm1) = norm.weight.to(wide);
    out[0] = norm.dx.view(saved[0].sizes());
    return out;
  }
};

}  // namespace

bool Fuses(const Layer& layer, const at::Tensor& x, const Pass& pass) {
  if (!x.is_cuda() || pass.plan.mask.defined()) return false;
  const Attention& a = *layer.self_attn;
  const Mlp& m = *layer.mlp;
  for (const Linear* linear : {a.q_proj.get(), a.k_proj.get(), a.v_proj.get(), a.o_proj.get(), m.gate_proj.get(),
                               m.up_proj.get(), m.down_proj.get()}) {
    if (linear->lora_a.defined() || !linear->weight.requires_grad()) return false;
  }
  const int64_t mlp = m.gate_proj->weight.size(0);
  return a.head_size % 16 == 0 && a.head_size <= 256 && mlp % 8 == 0 && layer.input_layernorm->weight.requires_grad() &&
         layer.post_attention_layernorm->weight.requires_grad() &&
         x.scalar_type() == layer.input_layernorm->weight.scalar_type() &&
         kernels::Usable(x.device(), ComputeType(x), x.scalar_type(), x.size(-1));
}

at::Tensor FusedLayer(const Layer& layer, const at::Tensor& x, const Pass& pass) {
  auto shape = std::make_shared<LayerShape>();
  shape->head_size = layer.self_attn->head_size;
  shape->epsilon = layer.epsilon;
  shape->type = ComputeType(x);
  shape->plan = pass.plan;
  shape->in_place = pass.gradients_in_place;
  shape->keeps_gate_up =
      std::find(pass.recompute_mlp.begin(), pass.recompute_mlp.end(), &layer) == pass.recompute_mlp.end();
  shape->cos = pass.rotary.cos.reshape({-1, shape->head_size / 2});
  shape->sin = pass.rotary.sin.reshape({-1, shape->head_size / 2});
  const std::vector<at::Tensor> parameters = ParametersOf(layer);
  return LayerFunction::apply(x, at::TensorList(parameters), std::shared_ptr<const LayerShape>(std::move(shape)));
}

}  // namespace lockstep::models::decoder
