#include "models/decoder_ops.h"

#include <ATen/autocast_mode.h>
#include <torch/autograd.h>

#include <cmath>

#include "models/decoder_kernels.h"

namespace lockstep::models::decoder {
namespace {

using torch::autograd::AutogradContext, torch::autograd::variable_list;

// The functions choose their types themselves.
struct NoAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard{c10::autocast_dispatch_keyset};
};

at::Tensor InverseRms(const at::Tensor& x, double epsilon) {
  return x.to(at::kFloat).square().mean(-1, true).add_(epsilon).rsqrt_();
}

at::Tensor Normalize(const at::Tensor& x, const at::Tensor& inverse, const at::Tensor& weight, at::ScalarType type) {
  return ((x.to(at::kFloat) * inverse).to(x.scalar_type()) * weight).to(type);
}

struct NormGradients {
  at::Tensor x, weight;  // float32
};

NormGradients NormBackward(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& inverse,
                           const at::Tensor& weight) {
  const at::Tensor dy = gradient.to(at::kFloat);
  const at::Tensor normal = x.to(at::kFloat) * inverse;
  const at::Tensor d_weight = (dy * normal).flatten(0, -2).sum(0);
  at::Tensor dx = dy * weight.to(at::kFloat);
  dx = dx.sub_(normal * (dx * normal).mean(-1, true)).mul_(inverse);
  return {dx, d_weight};
}

// Rows of x, and whether the kernels take them.
at::Tensor RowsOf(const at::Tensor& x) { return x.detach().reshape({-1, x.size(-1)}).contiguous(); }
bool FusesNorm(const at::Tensor& x, const at::Tensor& weight, at::ScalarType type) {
  return x.scalar_type() == weight.scalar_type() && kernels::Usable(x.device(), type, x.scalar_type(), x.size(-1));
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, double epsilon,
                            int64_t type) {
    const NoAutocast no_autocast;
    const auto compute = static_cast<at::ScalarType>(type);
    if (FusesNorm(x, weight, compute)) {
      const kernels::Normed out = kernels::Norm(RowsOf(x), {}, weight.detach(), epsilon, compute, false);
      context->save_for_backward({x, out.inverse, weight});
      return out.normed.view(x.sizes());
    }
    const at::Tensor inverse = InverseRms(x, epsilon);
    context->save_for_backward({x, inverse, weight});
    return Normalize(x, inverse, weight, compute);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast no_autocast;
    const auto saved = context->get_saved_variables();
    if (FusesNorm(saved[0], saved[2], gradients[0].scalar_type())) {
      const kernels::NormGradients out = kernels::NormBackward(RowsOf(gradients[0]), RowsOf(saved[0]), {}, saved[1],
                                                               saved[2].detach(), {}, false, false);
      return {out.dx.view(saved[0].sizes()), out.weight.to(saved[2].scalar_type()), {}, {}};
    }
    const auto [dx, d_weight] = NormBackward(gradients[0], saved[0], saved[1], saved[2]);
    return {dx.to(saved[0].scalar_type()), d_weight.to(saved[2].scalar_type()), {}, {}};
  }
};

struct AddNormFunction : torch::autograd::Function<AddNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& residual, const at::Tensor& x,
                               const at::Tensor& weight, double epsilon, int64_t type) {
    const NoAutocast no_autocast;
    const at::Tensor sum = residual + x;
    const at::Tensor inverse = InverseRms(sum, epsilon);
    context->save_for_backward({sum, inverse, weight});
    context->saved_data["residual"] = static_cast<int64_t>(residual.scalar_type());
    context->saved_data["x"] = static_cast<int64_t>(x.scalar_type());
    return {sum, Normalize(sum, inverse, weight, static_cast<at::ScalarType>(type))};
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast no_autocast;
    const auto saved = context->get_saved_variables();
    const auto type = [&](const char* key) { return static_cast<at::ScalarType>(context->saved_data[key].toInt()); };
    auto [dx, d_weight] = NormBackward(gradients[1], saved[0], saved[1], saved[2]);
    if (gradients[0].defined()) dx.add_(gradients[0]);
    return {dx.to(type("residual")), dx.to(type("x")), d_weight.to(saved[2].scalar_type()), {}, {}};
  }
};

at::Tensor Turn(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  const at::Tensor &a = halves[0], &b = halves[1];
  return at::cat({a * cos - b * sin, b * cos + a * sin}, -1).to(x.scalar_type());
}

struct RotateFunction : torch::autograd::Function<RotateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    const NoAutocast no_autocast;
    context->save_for_backward({cos, sin});
    return Turn(x, cos, sin);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast no_autocast;
    const auto saved = context->get_saved_variables();
    return {Turn(gradients[0], saved[0], -saved[1]), {}, {}};
  }
};

struct SwiGluFunction : torch::autograd::Function<SwiGluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const NoAutocast no_autocast;
    context->save_for_backward({gate, up});
    return at::silu(gate).mul_(up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const NoAutocast no_autocast;
    const auto saved = context->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1], &dy = gradients[0];
    return {at::silu_backward(dy * up, gate), at::silu(gate).mul_(dy)};
  }
};

}  // namespace

at::ScalarType ComputeType(const at::Tensor& like) {
  const at::DeviceType device = like.device().type();
  return at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : like.scalar_type();
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return NormFunction::apply(x, weight, epsilon, static_cast<int64_t>(ComputeType(x)));
}

AddedNorm AddRmsNorm(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  auto out = AddNormFunction::apply(residual, x, weight, epsilon, static_cast<int64_t>(ComputeType(residual)));
  return {out[0], out[1]};
}

Rotary MakeRotary(const at::Tensor& positions, int64_t head_size, double theta, at::ScalarType type) {
  const at::Tensor steps = at::arange(0, head_size, 2, positions.options().dtype(at::kFloat)) / head_size;
  const at::Tensor frequencies = at::scalar_tensor(theta, steps.options()).pow(steps).reciprocal();
  const at::Tensor angles = (positions.to(at::kFloat).unsqueeze(-1) * frequencies).unsqueeze(2);
  return {angles.cos().to(type), angles.sin().to(type)};
}

at::Tensor Rotate(const at::Tensor& x, const Rotary& rotary) {
  return RotateFunction::apply(x, rotary.cos, rotary.sin);
}

at::Tensor SwiGlu(const at::Tensor& gate, const at::Tensor& up) { return SwiGluFunction::apply(gate, up); }

}  // namespace lockstep::models::decoder
