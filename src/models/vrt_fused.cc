#include "models/vrt_fused.h"

#include <torch/autograd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/recomputing.h"
#include "models/decoder_ops.h"
#include "models/fused_function.h"
#include "models/vrt_copies.h"
#include "models/vrt_kernels.h"
#include "models/vrt_products.h"

namespace lockstep::models::vrt {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext, torch::autograd::variable_list;

constexpr double kEpsilon = 1e-5;  // of LayerNorm
constexpr int64_t kSide = 8;       // of windows

at::ScalarType TypeOf(const Tensor& x) { return decoder::ComputeType(x); }
Tensor Cast(const Tensor& x, at::ScalarType type) { return x.detach().to(type); }
Tensor Floats(const Tensor& x) { return Cast(x, at::kFloat).contiguous(); }

// a' b in float32. The rows are so many that one product would leave most of the device idle: in parts, added up.
Tensor WeightGradient(const Tensor& a, const Tensor& b) {
  const int64_t rows = a.size(0);
  int64_t parts = 64;
  while (parts > 1 && (rows % parts != 0 || rows / parts < 512)) --parts;
  if (parts == 1) return at::mm(a.t(), b, at::kFloat);
  const auto split = [&](const Tensor& x) { return x.view({parts, rows / parts, x.size(1)}); };
  return kernels::SumParts(a, at::bmm(split(a).transpose(1, 2), split(b), at::kFloat));
}

void GiveTypes(variable_list* out, const std::vector<Tensor>& parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    Tensor& gradient = (*out)[1 + i];
    if (gradient.defined()) gradient = gradient.to(parameters[i].scalar_type());
  }
}

struct AttentionShape {
  at::ScalarType type = at::kBFloat16;
  kernels::Windows windows{};
  std::array<int64_t, 3> padding{};  // rows of zeros that windows need behind the clip
  int64_t table_first = 0;           // row of the table where those of this depth begin
  bool has_bias = true;
  Tensor code;    // [64, width], float32
  Tensor factor;  // of DropPath
  std::shared_ptr<const AttentionCopy> copy;
  Tensor table;  // [heads, positions of this depth]

  bool padded() const { return padding[0] + padding[1] + padding[2] > 0; }
  // [tokens of clips, c] -> [tokens of padded clips, c], and back.
  Tensor Pad(const Tensor& x) const {
    if (!padded()) return x;
    return at::constant_pad_nd(x.view({windows.clips, windows.frames - padding[0], windows.rows - padding[1],
                                       windows.columns - padding[2], x.size(1)}),
                               {0, 0, 0, padding[2], 0, padding[1], 0, padding[0]})
        .flatten(0, 3);
  }
  Tensor Crop(const Tensor& x) const {
    if (!padded()) return x;
    return x.view({windows.clips, windows.frames, windows.rows, windows.columns, x.size(1)})
        .narrow(1, 0, windows.frames - padding[0])
        .narrow(2, 0, windows.rows - padding[1])
        .narrow(3, 0, windows.columns - padding[2])
        .reshape({-1, x.size(1)});
  }
};

// Parameters in the order of the function's arguments.
enum AttentionSlot : size_t { kNormWeight, kNormBias, kTable, kProj, kProjBias, kSelf, kMutual };

Tensor Product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

// x + factor * linear(in).
Tensor AddLinear(const Tensor& x, const Tensor& in, const Tensor& weight, const Tensor& bias, const Tensor& factor) {
  if (products::FitsLinear(x, in.size(1), x.size(1))) {
    return products::AddLinear(x, in, {Floats(weight), Floats(bias)}, factor);
  }
  const at::ScalarType type = x.scalar_type();
  return kernels::Residual(x, at::addmm(Cast(bias, type), in, Cast(weight, type).t()), factor);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, at::TensorList list,
                        const std::shared_ptr<const AttentionShape>& s, KeptAttention* kept) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const std::vector<Tensor> p = list.vec();
    const Tensor x = input.detach().contiguous().view({-1, input.size(-1)});
    const AttentionCopy& w = *s->copy;
    kernels::Normed normed = kernels::Norm(x, Floats(p[kNormWeight]), Floats(p[kNormBias]), kEpsilon);
    const Tensor qkv = Product(s->Pad(normed.normed), w.qkv, w.qkv_bias);
    normed.normed.reset();
    kernels::Attended attended;
    if (kept != nullptr && kept->out.defined()) {
      attended = {std::exchange(kept->out, {}), std::exchange(kept->lse, {})};
    } else if (!Recomputing::Now() || !kernels::AttendsAgain(qkv, s->windows)) {
      attended = kernels::Attend(qkv, w.code, s->table, s->windows);
    }
    std::vector<Tensor> saved{input};
    saved.insert(saved.end(), p.begin(), p.end());
    context->save_for_backward(saved);
    context->saved_data["stats"] = normed.stats;
    context->saved_data["qkv"] = qkv;
    context->saved_data["out"] = attended.out;
    context->saved_data["lse"] = attended.lse;
    KeepShape(context, s);
    if (Recomputing::Now()) return at::empty_like(x).view(input.sizes());  // nobody reads it
    return AddLinear(x, s->Crop(attended.out), p[kProj], p[kProjBias], s->factor).view(input.sizes());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto s = KeptShape<AttentionShape>(context);
    const std::vector<Tensor> p(saved.begin() + 1, saved.end());
    variable_list out(1 + p.size() + 2);
    const auto gradient = [&](size_t slot) -> Tensor& { return out[1 + slot]; };
    const int64_t width = s->windows.width;
    const Tensor x = saved[0].detach().contiguous().view({-1, width});
    const AttentionCopy& w = *s->copy;
    Tensor dx;

    const Tensor d_result = gradients[0].to(s->type).contiguous().view({-1, width});
    const Tensor dy = s->factor.defined() ? kernels::Residual({}, d_result, s->factor) : d_result;
    const kernels::Attended attended{TakeKept(context, "out"), TakeKept(context, "lse")};
    Tensor qkv = TakeKept(context, "qkv");
    kernels::AttendGradients d =
        kernels::AttendBackward(s->Pad(at::mm(dy, w.proj)), qkv, w.code, s->table, attended, s->windows);
    qkv.reset();
    gradient(kProj) = WeightGradient(dy, s->Crop(attended.out.defined() ? attended.out : d.out));
    Tensor d_weight, d_bias;
    if (!s->padded() && products::FitsLinearGradient(x, width, w.qkv.size(0))) {
      const Tensor norm = Floats(p[kNormWeight]);
      products::NormGradient of_norm = products::LinearBackward(d.qkv, x, d_result, w.qkv, norm, s->factor, kEpsilon);
      const products::BehindNorm behind =
          products::GradientsBehindNorm(WeightGradient(d.qkv, of_norm.plain), w.qkv, norm, Floats(p[kNormBias]));
      gradient(kNormWeight) = behind.norm, gradient(kNormBias) = behind.norm_bias, gradient(kProjBias) = of_norm.along;
      d_weight = behind.weight, d_bias = behind.bias, dx = of_norm.dx;
    } else {
      const Tensor d_normed = s->Crop(at::mm(d.qkv, w.qkv));
      kernels::NormGradients norm = kernels::NormBackward(
          d_normed, x, TakeKept(context, "stats"), Floats(p[kNormWeight]), Floats(p[kNormBias]), d_result, s->factor);
      d_weight = WeightGradient(d.qkv, s->Pad(norm.normed));
      if (s->has_bias) d_bias = kernels::ColumnSums(d.qkv, 3 * width);
      gradient(kNormWeight) = norm.weight, gradient(kNormBias) = norm.bias, gradient(kProjBias) = norm.along;
      dx = norm.dx;
    }
    gradient(kTable) = d.table;
    if (const int64_t all = p[kTable].size(0); all != d.table.size(0)) {
      gradient(kTable) = at::constant_pad_nd(d.table, {0, 0, s->table_first, all - s->table_first - d.table.size(0)});
    }
    gradient(kSelf) = d_weight.narrow(0, 0, 3 * width);
    if (s->has_bias) gradient(kSelf + 1) = d_bias.narrow(0, 0, 3 * width);
    if (s->windows.mutual) {
      const size_t mutual = s->has_bias ? kMutual + 1 : kMutual;
      gradient(mutual) = at::addmm(d_weight.narrow(0, 3 * width, 3 * width), d.places.t(), s->code);
      if (s->has_bias) gradient(mutual + 1) = d.places.sum(0);
    }
    out[0] = dx.view(saved[0].sizes());
    GiveTypes(&out, p);
    return out;
  }
};

// As AttentionFunction's forward pass, where nothing is kept.
Tensor ForwardAttention(const Tensor& input, const std::vector<Tensor>& p, const AttentionShape& s,
                        KeptAttention* kept) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const Tensor x = input.contiguous().view({-1, input.size(-1)});
  const AttentionCopy& w = *s.copy;
  const kernels::Attended attended = kernels::AttendWindows(
      x, {Floats(p[kNormWeight]), Floats(p[kNormBias]), w.qkv, w.qkv_bias, w.code, s.table}, s.windows, kEpsilon,
      /*with_lse=*/kept != nullptr);
  if (kept != nullptr) kept->out = attended.out, kept->lse = attended.lse;
  return AddLinear(x, attended.out, p[kProj], p[kProjBias], s.factor).view(input.sizes());
}

struct MlpShape {
  at::ScalarType type = at::kBFloat16;
  bool normed = true;  // x + factor * mlp(norm(x)), else mlp(x)
  bool whole = false;  // one kernel each way: nothing but the input is kept
  Tensor factor;
  std::shared_ptr<const MlpCopy> copy;
};

enum MlpSlot : size_t { kGate, kGateBias, kValue, kValueBias, kDown, kDownBias, kMlpNorm, kMlpNormBias };

Tensor AddWholeMlp(const Tensor& x, const std::vector<Tensor>& p, const Tensor& factor) {
  const auto linear = [&](size_t slot) { return products::LinearParameters{Floats(p[slot]), Floats(p[slot + 1])}; };
  return products::AddMlp(x,
                          {Floats(p[kMlpNorm]), Floats(p[kMlpNormBias]), linear(kGate), linear(kValue), linear(kDown)},
                          factor, kEpsilon);
}

struct MlpFunction : torch::autograd::Function<MlpFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, at::TensorList list,
                        const std::shared_ptr<const MlpShape>& s) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const std::vector<Tensor> p = list.vec();
    const Tensor x = input.detach().contiguous().view({-1, input.size(-1)});
    std::vector<Tensor> saved{input};
    saved.insert(saved.end(), p.begin(), p.end());
    context->save_for_backward(saved);
    KeepShape(context, s);
    if (s->whole) {
      if (Recomputing::Now()) return at::empty_like(x).view(input.sizes());  // nobody reads it
      return AddWholeMlp(x, p, s->factor).view(input.sizes());
    }
    Tensor seen = x;
    if (s->normed) {
      kernels::Normed normed = kernels::Norm(x, Floats(p[kMlpNorm]), Floats(p[kMlpNormBias]), kEpsilon);
      seen = normed.normed;
      context->saved_data["stats"] = normed.stats;
    }
    const Tensor both = at::addmm(s->copy->both_bias, seen, s->copy->both.t());
    seen.reset();
    context->saved_data["both"] = both;
    std::vector<int64_t> sizes = input.sizes().vec();
    sizes.back() = p[kDown].size(0);
    if (Recomputing::Now()) return at::empty(sizes, both.options());  // nobody reads it
    const Tensor hidden = kernels::Geglu(both);
    if (s->normed) return AddLinear(x, hidden, p[kDown], p[kDownBias], s->factor).view(sizes);
    return at::addmm(s->copy->down_bias, hidden, s->copy->down.t()).view(sizes);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const auto s = KeptShape<MlpShape>(context);
    const std::vector<Tensor> p(saved.begin() + 1, saved.end());
    variable_list out(1 + p.size() + 1);
    const auto gradient = [&](size_t slot) -> Tensor& { return out[1 + slot]; };
    const Tensor x = saved[0].detach().contiguous().view({-1, saved[0].size(-1)});
    const Tensor d_result = gradients[0].to(s->type).contiguous().view({x.size(0), -1});
    const int64_t half = p[kGate].size(0);
    const auto give_both = [&](const Tensor& weight, const Tensor& bias) {
      gradient(kGate) = weight.narrow(0, 0, half), gradient(kValue) = weight.narrow(0, half, half);
      gradient(kGateBias) = bias.narrow(0, 0, half), gradient(kValueBias) = bias.narrow(0, half, half);
    };
    if (s->whole) {
      const Tensor norm = Floats(p[kMlpNorm]), norm_bias = Floats(p[kMlpNormBias]);
      products::MlpGradient d = products::MlpBackward(
          x, d_result, norm, norm_bias, {s->copy->both, s->copy->both_bias, s->copy->down}, s->factor, kEpsilon);
      const Tensor down = WeightGradient(d_result, d.given);
      gradient(kDown) = down.narrow(1, 0, half), gradient(kDownBias) = down.select(1, half);
      const products::BehindNorm behind =
          products::GradientsBehindNorm(WeightGradient(d.d_both, d.norm.plain), s->copy->both, norm, norm_bias);
      gradient(kMlpNorm) = behind.norm, gradient(kMlpNormBias) = behind.norm_bias;
      give_both(behind.weight, behind.bias);
      out[0] = d.norm.dx.view(saved[0].sizes());
      GiveTypes(&out, p);
      return out;
    }
    const Tensor dy = s->factor.defined() ? kernels::Residual({}, d_result, s->factor) : d_result;
    const Tensor both = TakeKept(context, "both");
    Tensor d_bias;
    {
      const Tensor hidden = at::mm(dy, s->copy->down);
      d_bias = kernels::GegluBackward(both, hidden);  // now the gradient of both, and what GEGLU gave in forward
      gradient(kDown) = WeightGradient(dy, hidden);
    }
    Tensor dx = at::mm(both, s->copy->both), seen = x;
    if (s->normed) {
      kernels::NormGradients norm = kernels::NormBackward(dx, x, TakeKept(context, "stats"), Floats(p[kMlpNorm]),
                                                          Floats(p[kMlpNormBias]), d_result, s->factor);
      gradient(kMlpNorm) = norm.weight, gradient(kMlpNormBias) = norm.bias, gradient(kDownBias) = norm.along;
      dx = norm.dx, seen = norm.normed;
    } else {
      gradient(kDownBias) = kernels::ColumnSums(dy);
    }
    give_both(WeightGradient(both, seen), d_bias);
    out[0] = dx.view(saved[0].sizes());
    GiveTypes(&out, p);
    return out;
  }
};

struct NormFunction : torch::autograd::Function<NormFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight, const Tensor& bias) {
    const Tensor x = input.detach().contiguous().view({-1, input.size(-1)});
    const kernels::Normed normed = kernels::Norm(x, Floats(weight), Floats(bias), kEpsilon);
    context->save_for_backward({input, weight, bias, normed.stats});
    return normed.normed.view(input.sizes());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor x = saved[0].detach().contiguous().view({-1, saved[0].size(-1)});
    const kernels::NormGradients norm =
        kernels::NormBackward(gradients[0].to(x.scalar_type()).contiguous().view(x.sizes()), x, saved[3],
                              Floats(saved[1]), Floats(saved[2]), {}, {}, /*with_normed=*/false);
    return {norm.dx.view(saved[0].sizes()), norm.weight.to(saved[1].scalar_type()),
            norm.bias.to(saved[2].scalar_type())};
  }
};

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& input, const Tensor& weight,
                        const Tensor& bias) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    context->save_for_backward({input, weight, bias});
    const auto rows = [](const Tensor& y) { return y.detach().contiguous().view({-1, y.size(-1)}); };
    return AddLinear(rows(x), rows(input), weight, bias, {}).view(x.sizes());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = context->get_saved_variables();
    const Tensor in = saved[0].detach().contiguous().view({-1, saved[0].size(-1)}), weight = saved[1];
    const Tensor along = gradients[0].to(in.scalar_type()).contiguous(), dy = along.view({in.size(0), -1});
    return {along, at::mm(dy, Cast(weight, in.scalar_type())).view(saved[0].sizes()),
            WeightGradient(dy, in).to(weight.scalar_type()), kernels::ColumnSums(dy).to(saved[2].scalar_type())};
  }
};

bool IsPlain(const Linear& linear) { return !linear.lora_a.defined(); }

std::vector<Tensor> ParametersOf(const Geglu& mlp) {
  return {mlp.fc11->weight, mlp.fc11->bias, mlp.fc12->weight, mlp.fc12->bias, mlp.fc2->weight, mlp.fc2->bias};
}

}  // namespace

bool Fuses(const Norm& norm, const Tensor& x) {
  return x.is_cuda() && kernels::FitsRows(norm.weight.size(0)) && kernels::Usable(x.device(), TypeOf(x));
}

bool Fuses(const Norm& norm, const WindowAttention& a, const Tensor& x) {
  if (!x.is_cuda() || a.window[1] != kSide || a.window[2] != kSide || x.size(2) < kSide || x.size(3) < kSide) {
    return false;
  }
  const int64_t width = norm.weight.size(0);
  return Fuses(norm, x) && kernels::FitsWindows(a.window[0], width / a.heads) && IsPlain(*a.qkv_self) &&
         IsPlain(*a.proj) && (!a.mutual || (IsPlain(*a.qkv_mut) && x.size(1) >= 2));
}

bool Fuses(const Geglu& mlp, const Tensor& x) {
  // GEGLU goes by eight elements; a thread for four columns sums them.
  return x.is_cuda() && mlp.fc11->weight.size(0) % 8 == 0 && 2 * mlp.fc11->weight.size(0) <= 2048 &&
         mlp.fc2->weight.size(0) % 4 == 0 && kernels::Usable(x.device(), TypeOf(x));
}

Tensor FusedAttention(const Norm& norm, const WindowAttention& a, const Size3& shift, const Tensor& x,
                      const Tensor& factor, std::shared_ptr<const AttentionCopy> copy, KeptAttention* kept) {
  auto s = std::make_shared<AttentionShape>();
  const int64_t width = x.size(4), depth = std::min(x.size(1), a.window[0]);
  const Size3 window{depth, kSide, kSide};
  Size3 whole{};
  for (size_t i = 0; i < 3; ++i) {
    const int64_t size = x.size(static_cast<int64_t>(i) + 1);
    whole[i] = (size + window[i] - 1) / window[i] * window[i];
    s->padding[i] = whole[i] - size;
    s->windows.shift[i] = size <= a.window[i] ? 0 : shift[i];
  }
  s->type = TypeOf(x);
  s->windows.clips = x.size(0), s->windows.frames = whole[0], s->windows.rows = whole[1], s->windows.columns = whole[2];
  s->windows.depth = depth, s->windows.heads = a.heads, s->windows.width = width;
  s->windows.scale = a.scale, s->windows.mutual = a.mutual;
  s->table_first = (a.window[0] - depth) * (2 * kSide - 1) * (2 * kSide - 1);
  s->has_bias = a.qkv_self->bias.defined();
  s->factor = factor;
  s->copy = copy ? std::move(copy) : CopyOf(a, s->type);
  const int64_t positions = (2 * depth - 1) * (2 * kSide - 1) * (2 * kSide - 1);
  s->table = s->copy->table.narrow(1, s->table_first, positions).contiguous();
  if (a.mutual) s->code = a.tables->SineCode(a.window, width, x.device())[0].narrow(0, 0, kSide * kSide);
  std::vector<Tensor> parameters{norm.weight,    norm.bias,    a.relative_position_bias_table,
                                 a.proj->weight, a.proj->bias, a.qkv_self->weight};
  if (s->has_bias) parameters.push_back(a.qkv_self->bias);
  if (a.mutual) parameters.push_back(a.qkv_mut->weight);
  if (a.mutual && s->has_bias) parameters.push_back(a.qkv_mut->bias);
  const at::ScalarType type = s->type;
  if (!at::GradMode::is_enabled() && !s->padded() && kernels::FitsWindowsOf(x, s->windows)) {
    return ForwardAttention(x.to(type), parameters, *s, kept);
  }
  return AttentionFunction::apply(x.to(type), at::TensorList(parameters),
                                  std::shared_ptr<const AttentionShape>(std::move(s)), kept);
}

Tensor FusedMlp(const Norm& norm, const Geglu& mlp, const Tensor& x, const Tensor& factor,
                std::shared_ptr<const MlpCopy> copy) {
  const at::ScalarType type = TypeOf(x);
  std::vector<Tensor> p = ParametersOf(mlp);
  p.push_back(norm.weight);
  p.push_back(norm.bias);
  const Tensor in = x.to(type);
  const int64_t width = in.size(-1), hidden = p[kGate].size(0);
  const bool fits = products::FitsMlp(in, width, hidden);
  if (!at::GradMode::is_enabled() && fits) {
    return AddWholeMlp(in.contiguous().view({-1, width}), p, factor).view(in.sizes());
  }
  auto s =
      std::make_shared<MlpShape>(MlpShape{type, /*normed=*/true, fits && products::FitsMlpGradient(in, width, hidden),
                                          factor, copy ? std::move(copy) : CopyOf(mlp, type)});
  return MlpFunction::apply(in, at::TensorList(p), std::shared_ptr<const MlpShape>(std::move(s)));
}

Tensor AddLinear(const Linear& linear, const Tensor& in, const Tensor& x) {
  const at::ScalarType type = TypeOf(x);
  if (!x.is_cuda() || !IsPlain(linear) || !linear.bias.defined() || !kernels::Usable(x.device(), type) ||
      !products::FitsLinear(x.to(type), in.size(-1), x.size(-1))) {
    return linear.Forward(in) + x;
  }
  return LinearFunction::apply(x.to(type), in.to(type), linear.weight, linear.bias);
}

Tensor FusedNorm(const Norm& norm, const Tensor& x) {
  return NormFunction::apply(x.to(TypeOf(x)), norm.weight, norm.bias);
}

Tensor FusedGeglu(const Geglu& mlp, const Tensor& x) {
  auto s =
      std::make_shared<MlpShape>(MlpShape{TypeOf(x), /*normed=*/false, /*whole=*/false, {}, CopyOf(mlp, TypeOf(x))});
  const std::vector<Tensor> parameters = ParametersOf(mlp);
  const at::ScalarType type = s->type;
  return MlpFunction::apply(x.to(type), at::TensorList(parameters), std::shared_ptr<const MlpShape>(std::move(s)));
}

}  // namespace lockstep::models::vrt
