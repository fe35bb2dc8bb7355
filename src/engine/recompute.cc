#include "engine/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "base/recomputing.h"
#include "engine/precision.h"

namespace lockstep::engine {
namespace {

// The generators of the CPU and, where the input lives on a device, of that device.
struct RandomState {
  at::Tensor cpu, device;
  at::Device where;

  static at::Generator Of(at::Device device) {
    return device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
  }
  static RandomState Take(at::Device device) {
    RandomState state{Of(at::kCPU).get_state(), {}, device};
    if (!device.is_cpu()) state.device = Of(device).get_state();
    return state;
  }
  void Restore() const {
    Of(at::kCPU).set_state(cpu);
    if (!where.is_cpu()) Of(where).set_state(device);
  }
};

struct RecomputedSegment : torch::CustomClassHolder {
  RecomputedSegment(std::function<at::Tensor(at::Tensor)> f, RandomState state)
      : run(std::move(f)), random(std::move(state)) {}
  std::function<at::Tensor(at::Tensor)> run;
  RandomState random;
  bool autocast = false;
  at::ScalarType type = at::kFloat;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  // `anchor` requires a gradient, so that backward comes by although the input may not.
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& /*anchor*/, const c10::intrusive_ptr<RecomputedSegment>& segment) {
    const at::DeviceType device = input.device().type();
    segment->autocast = at::autocast::is_autocast_enabled(device);
    segment->type = at::autocast::get_autocast_dtype(device);
    context->save_for_backward({input});
    context->saved_data["segment"] = c10::IValue::make_capsule(segment);
    const at::NoGradGuard no_grad;
    return segment->run(input);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    auto segment = c10::static_intrusive_pointer_cast<RecomputedSegment>(context->saved_data["segment"].toCapsule());
    const at::Tensor saved = context->get_saved_variables()[0];
    at::Tensor input = saved.detach();
    input.requires_grad_(saved.requires_grad());
    const RandomState now = RandomState::Take(input.device());
    at::Tensor output;
    {
      const at::AutoGradMode grad(true);
      const AutocastGuard autocast(input.device().type(), segment->autocast, segment->type);
      segment->random.Restore();
      const Recomputing recomputing;
      output = segment->run(input);
      now.Restore();
    }
    if (!output.requires_grad()) return {at::Tensor(), at::Tensor(), at::Tensor()};  // all of it is frozen
    torch::autograd::backward({output}, {gradients[0]});
    return {input.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor Recompute(std::function<at::Tensor(at::Tensor)> segment, const at::Tensor& input) {
  if (!at::GradMode::is_enabled()) return segment(input);
  auto held = c10::make_intrusive<RecomputedSegment>(std::move(segment), RandomState::Take(input.device()));
  const at::Tensor anchor = at::empty({0}, input.options().dtype(at::kFloat)).requires_grad_(true);
  return RecomputeFunction::apply(input, anchor, held);
}

}  // namespace lockstep::engine
