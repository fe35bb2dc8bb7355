#include "engine/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <cmath>
#include <mutex>

#include "engine/device_kernels.h"
#include "engine/kernels.h"
#include "engine/parallel.h"

namespace lockstep::engine {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements; small enough to share out, large enough to stream

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, const OwnedParameters& own, std::vector<GroupSettings> groups,
                     std::vector<int> group_of)
    : config_(config),
      own_(own),
      groups_(std::move(groups)),
      group_of_(std::move(group_of)),
      steps_(group_of_.size(), 0) {
  if (config_.kind == OptimizerConfig::Kind::kSgd) {
    if (config_.momentum != 0) slots_.push_back({"momentum_buffer", own.NewState()});
  } else {
    slots_.push_back({"exp_avg", own.NewState()});
    slots_.push_back({"exp_avg_sq", own.NewState()});
  }
}

std::vector<Optimizer::Run> Optimizer::Runs(const std::vector<bool>& active) const {
  std::vector<Run> runs;
  bool open = false;
  for (const Segment& segment : own_.segments) {
    const size_t i = segment.parameter;
    if (!active[i]) {
      open = false;
      continue;
    }
    const int64_t step = steps_[i] + 1;
    const int64_t shift = segment.flat - segment.begin;
    if (open && runs.back().group == group_of_[i] && runs.back().step == step && runs.back().shift == shift) {
      runs.back().end = segment.end;  // padding between two parameters is zero in every buffer and stays zero
    } else {
      runs.push_back({segment.begin, segment.end, shift, group_of_[i], step});
    }
    open = true;
  }
  return runs;
}

void Optimizer::Step(double lr_factor, double gradient_factor, const std::vector<bool>& active) {
  const at::NoGradGuard no_grad;
  const std::vector<Run> runs = Runs(active);
  ParallelFor(0, own_.numel(), kGrain, [&](int64_t begin, int64_t end) {
    StepRange(runs, {begin, end}, lr_factor, gradient_factor, {own_.gradients, 0, own_.gradients_in_place, {}});
  });
  EndChunks(active);
}

void Optimizer::EndChunks(const std::vector<bool>& active) {
  for (size_t i = 0; i < active.size(); ++i) steps_[i] += active[i] ? 1 : 0;
}

void Optimizer::StepChunk(const FlatRange& range, double lr_factor, double gradient_factor,
                          const std::vector<bool>& active, const at::Tensor& gradients, const at::Tensor& out) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = own_.values.narrow(0, range.begin, range.size());
  const bool fused = out.scalar_type() == at::kBFloat16 && config_.kind != OptimizerConfig::Kind::kSgd;
  const at::Tensor from = fused ? gradients : gradients.to(at::kFloat);
  const std::vector<Run> runs = Runs(active);
  ParallelFor(range.begin, range.end, kGrain, [&](int64_t begin, int64_t end) {
    StepRange(runs, {begin, end}, lr_factor, gradient_factor, {from, range.begin, false, fused ? out : at::Tensor()});
  });
  bool all = fused;  // whether every element was written
  int64_t end = range.begin;
  for (const Run& run : runs) {
    if (run.end <= range.begin || run.begin >= range.end) continue;
    all = all && run.begin <= end;
    end = run.end;
  }
  if (all && end >= range.end) return;
  const at::Tensor to = out.narrow(0, 0, range.size());
  if (to.const_data_ptr() != values.const_data_ptr()) to.copy_(values);
}

void Optimizer::StepRange(const std::vector<Run>& runs, const FlatRange& range, double lr_factor,
                          double gradient_factor, const Through& through) {
  for (Run run : runs) {
    run.begin = std::max(run.begin, range.begin);
    run.end = std::min(run.end, range.end);
    if (run.begin >= run.end) continue;
    const double lr = config_.lr * lr_factor * groups_[static_cast<size_t>(run.group)].lr_scale;
    config_.kind == OptimizerConfig::Kind::kSgd ? StepSgd(run, lr, gradient_factor, through)
                                                : StepAdam(run, lr, gradient_factor, through);
  }
}

void Optimizer::StepSgd(const Run& run, double lr, double gradient_factor, const Through& through) {
  kernels::SgdStep step;
  step.lr = static_cast<float>(lr);
  step.l2 = static_cast<float>(groups_[static_cast<size_t>(run.group)].weight_decay);
  step.momentum = static_cast<float>(config_.momentum);
  step.gradient = static_cast<float>(gradient_factor);
  step.nesterov = config_.nesterov;
  step.first = run.step == 1;
  float* momentum = slots_.empty() ? nullptr : slots_[0].own.mutable_data_ptr<float>() + run.begin;
  const auto* g = static_cast<const float*>(through.gradients.const_data_ptr());
  kernels::Sgd(ValuesOf(run), g + through.Gradient(run), momentum, static_cast<size_t>(run.end - run.begin), step);
}

void Optimizer::StepAdam(const Run& run, double lr, double gradient_factor, const Through& through) {
  const double decay = groups_[static_cast<size_t>(run.group)].weight_decay;
  const auto t = static_cast<double>(run.step);
  const bool decoupled = config_.kind == OptimizerConfig::Kind::kAdamW;
  kernels::AdamStep step;
  step.lr = static_cast<float>(lr);
  step.decay = decoupled ? static_cast<float>(1 - lr * decay) : 1.0F;
  step.l2 = decoupled ? 0.0F : static_cast<float>(decay);
  step.beta1 = static_cast<float>(config_.beta1);
  step.beta2 = static_cast<float>(config_.beta2);
  step.epsilon = static_cast<float>(config_.epsilon);
  step.correction1 = static_cast<float>(1 - std::pow(config_.beta1, t));
  step.correction2 = static_cast<float>(std::sqrt(1 - std::pow(config_.beta2, t)));
  step.gradient = static_cast<float>(gradient_factor);
  const auto n = static_cast<size_t>(run.end - run.begin);
  float* p = ValuesOf(run);
  auto* m = slots_[0].own.mutable_data_ptr<float>() + run.begin;
  auto* v = slots_[1].own.mutable_data_ptr<float>() + run.begin;
  const void* g = through.gradients.const_data_ptr();
  const int64_t at = through.Gradient(run);
  if (!through.out.defined()) return kernels::Adam(p, static_cast<const float*>(g) + at, m, v, n, step);
  auto* out = static_cast<uint16_t*>(through.out.data_ptr()) + run.begin - through.base;
  if (through.gradients.scalar_type() == at::kBFloat16) {
    kernels::AdamFromBf16(p, static_cast<const uint16_t*>(g) + at, m, v, out, n, step);
  } else {
    kernels::AdamToBf16(p, static_cast<const float*>(g) + at, m, v, out, n, step);
  }
}

void Optimizer::StepOnDevice(const OnDevice& part, double lr_factor, double gradient_factor,
                             const std::vector<bool>& active, const at::Tensor& gradients) {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = part.values.options();
  const auto number = [&](double x, at::ScalarType type) { return at::full({}, x, options.dtype(type)); };
  const at::Tensor lr = number(lr_factor, at::kDouble), factor = number(gradient_factor, at::kDouble),
                   finite = number(0, at::kFloat);
  for (Run run : Runs(active)) {
    run.begin = std::max(run.begin, part.range.begin);
    run.end = std::min(run.end, part.range.end);
    if (run.begin >= run.end) continue;
    const int64_t at = run.begin - part.range.begin, n = run.end - run.begin;
    device::Adam(part.values.narrow(0, at, n), gradients.narrow(0, at, n), part.m.narrow(0, at, n),
                 part.v.narrow(0, at, n), RatesOf(run.group),
                 {lr, factor, number(static_cast<double>(run.step), at::kFloat), finite});
  }
}

device::AdamRates Optimizer::RatesOf(int group) const {
  const GroupSettings& settings = groups_[static_cast<size_t>(group)];
  return {config_.lr,
          settings.lr_scale,
          config_.beta1,
          config_.beta2,
          config_.epsilon,
          settings.weight_decay,
          config_.kind == OptimizerConfig::Kind::kAdamW ? 1 : 0};
}

void Optimizer::Activate(const std::vector<bool>& active) {
  active_ = active;
  device_groups_.assign(groups_.size(), {});
  const auto options = at::TensorOptions().dtype(at::kFloat).device(own_.values.device());
  for (const Run& run : Runs(active)) {
    DeviceGroup& group = device_groups_[static_cast<size_t>(run.group)];
    const int64_t n = run.end - run.begin;
    group.p.push_back(own_.Values(run.begin, n, run.begin + run.shift));
    group.g.push_back(own_.Gradients(run.begin, n, run.begin + run.shift));
    if (!slots_.empty()) group.m.push_back(slots_[0].own.narrow(0, run.begin, n));
    if (slots_.size() > 1) group.v.push_back(slots_[1].own.narrow(0, run.begin, n));
    group.steps.push_back(at::full({}, static_cast<double>(run.step - 1), options));
  }
}

// Adam by our own kernel where it compiles, else by torch's multi-tensor kernels, one call per group.
void Optimizer::QueueStep(const at::Tensor& lr_factor, const at::Tensor& factor, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor applies = 1 - found_inf, divisor = factor.reciprocal().to(at::kFloat);
  const bool own_kernel = config_.kind != OptimizerConfig::Kind::kSgd && device::Usable(found_inf.device());
  for (size_t i = 0; i < device_groups_.size(); ++i) {
    DeviceGroup& group = device_groups_[i];
    if (group.p.empty()) continue;
    for (at::Tensor& step : group.steps) step.add_(applies);
    const double decay = groups_[i].weight_decay;
    if (own_kernel) {
      const device::AdamRates rates = RatesOf(static_cast<int>(i));
      for (size_t k = 0; k < group.p.size(); ++k) {
        device::Adam(group.p[k], group.g[k], group.m[k], group.v[k], rates,
                     {lr_factor, factor, group.steps[k], found_inf});
      }
      continue;
    }
    const at::Tensor lr = (lr_factor * (config_.lr * groups_[i].lr_scale)).to(at::kFloat);
    switch (config_.kind) {
      case OptimizerConfig::Kind::kAdamW:
        at::_fused_adamw_(group.p, group.g, group.m, group.v, {}, group.steps, lr, config_.beta1, config_.beta2, decay,
                          config_.epsilon, /*amsgrad=*/false, /*maximize=*/false, divisor, found_inf);
        break;
      case OptimizerConfig::Kind::kAdam:
        at::_fused_adam_(group.p, group.g, group.m, group.v, {}, group.steps, lr, config_.beta1, config_.beta2, decay,
                         config_.epsilon, /*amsgrad=*/false, /*maximize=*/false, divisor, found_inf);
        break;
      case OptimizerConfig::Kind::kSgd:  // momentum starts at zero, so that the first step is like any other
        at::_fused_sgd_(group.p, group.g, group.m, decay, config_.momentum, lr, /*dampening=*/0, config_.nesterov,
                        /*maximize=*/false, /*is_first_step=*/false, divisor, found_inf);
        break;
    }
  }
}

void Optimizer::Settle(bool updated) {
  if (!updated) return;
  for (size_t i = 0; i < active_.size(); ++i) steps_[i] += active_[i] ? 1 : 0;
}

SquareSum GradientSquares(const at::Tensor& flat) {
  const auto* g = static_cast<const float*>(flat.const_data_ptr());
  std::mutex mutex;
  SquareSum sum;
  constexpr auto kBlock = static_cast<int64_t>(kernels::kSquareBlock);
  ParallelFor(0, (flat.numel() + kBlock - 1) / kBlock, kGrain / kBlock, [&](int64_t begin, int64_t end) {
    SquareSum part;
    part.Add(g + begin * kBlock, static_cast<size_t>(std::min(end * kBlock, flat.numel()) - begin * kBlock));
    const std::lock_guard lock(mutex);
    sum.Add(part);
  });
  return sum;
}

SquareSum GradientSquares(const OwnedParameters& own) {
  SquareSum sum;
  for (const auto& [begin, part] : own.GradientParts()) sum.Add(GradientSquares(part));
  return sum;
}

double GradientNorm(const at::Tensor& flat) { return GradientSquares(flat).Norm(); }

}  // namespace lockstep::engine
