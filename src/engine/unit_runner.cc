#include "engine/unit_runner.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "engine/recompute.h"

namespace lockstep::engine {
namespace {

using Phase = ParallelStrategy::Phase;

struct Callback : torch::CustomClassHolder {
  explicit Callback(std::function<void()> f) : call(std::move(f)) {}
  std::function<void()> call;
};

// The tensor itself; calls when its gradient comes by.
struct OnGradient : torch::autograd::Function<OnGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<Callback>& callback) {
    context->saved_data["callback"] = c10::IValue::make_capsule(callback);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    c10::static_intrusive_pointer_cast<Callback>(context->saved_data["callback"].toCapsule())->call();
    return {gradients[0], at::Tensor()};
  }
};

at::Tensor CallOnGradient(const at::Tensor& x, std::function<void()> call) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return x;
  return OnGradient::apply(x, c10::make_intrusive<Callback>(std::move(call)));
}

// The tensor itself. Gradients from inside the unit are added up here before those from outside join them, as they are
// where the unit is recomputed or a strategy is called: every way of running a unit gives the same bits.
at::Tensor Entered(const at::Tensor& x) { return at::GradMode::is_enabled() && x.requires_grad() ? x.view_as(x) : x; }

}  // namespace

UnitRunner MakeUnitRunner(ParallelStrategy* strategy, bool recompute_units, std::function<void(size_t unit)> before,
                          std::vector<bool> keep) {
  const auto recomputed = [recompute_units, keep = std::move(keep)](size_t unit) {
    return recompute_units && !(unit < keep.size() && keep[unit]);
  };
  if (strategy == nullptr) {
    return [recomputed, before](size_t unit, const UnitForward& forward, const at::Tensor& input) {
      if (before) before(unit);
      return recomputed(unit) ? Recompute(forward, input) : forward(Entered(input));
    };
  }
  return [strategy, recomputed, before](size_t unit, const UnitForward& forward, const at::Tensor& input) {
    if (before) before(unit);
    const bool recompute = recomputed(unit);
    const auto inside = [strategy, unit, forward, recompute](const at::Tensor& x) {
      // Recomputing runs without gradients first; the second time, in backward, the unit has been entered already.
      if (recompute && at::GradMode::is_enabled()) return forward(x);
      strategy->BeforeUnit(unit, Phase::kForward);
      at::Tensor y;
      try {
        y = forward(x);
      } catch (const c10::Error& error) {
        const std::string why = strategy->ExplainFailure(unit, [&] { forward(x); });
        TORCH_CHECK(why.empty(), why);
        throw;
      }
      strategy->AfterUnit(unit, Phase::kForward);
      return y;
    };
    const at::Tensor x = CallOnGradient(input, [strategy, unit] { strategy->AfterUnit(unit, Phase::kBackward); });
    const at::Tensor y = recompute ? Recompute(inside, x) : inside(x);
    return CallOnGradient(y, [strategy, unit] { strategy->BeforeUnit(unit, Phase::kBackward); });
  };
}

}  // namespace lockstep::engine
