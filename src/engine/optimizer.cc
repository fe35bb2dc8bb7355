#include "engine/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <cmath>
#include <mutex>

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
  for (const Run& run : Runs(active)) {
    StepCpu(run, config_.lr * lr_factor * groups_[static_cast<size_t>(run.group)].lr_scale, gradient_factor,
            own_.gradients, own_.gradients_in_place ? -run.shift : 0, {});
  }
  EndChunks(active);
}

void Optimizer::EndChunks(const std::vector<bool>& active) {
  for (size_t i = 0; i < active.size(); ++i) steps_[i] += active[i] ? 1 : 0;
}

void Optimizer::StepChunk(const FlatRange& range, double lr_factor, double gradient_factor,
                          const std::vector<bool>& active, const at::Tensor& gradients, const at::Tensor& out) {
  const at::NoGradGuard no_grad;
  const bool fused = out.scalar_type() == at::kBFloat16 && config_.kind != OptimizerConfig::Kind::kSgd;
  bool all = fused;  // whether every element was written
  int64_t end = range.begin;
  for (Run run : Runs(active)) {
    run.begin = std::max(run.begin, range.begin);
    run.end = std::min(run.end, range.end);
    if (run.begin >= run.end) continue;
    all = all && run.begin == end;
    end = run.end;
    StepCpu(run, config_.lr * lr_factor * groups_[static_cast<size_t>(run.group)].lr_scale, gradient_factor, gradients,
            range.begin, fused ? out : at::Tensor());
  }
  if (all && end == range.end) return;
  out.narrow(0, 0, range.size()).copy_(own_.values.narrow(0, range.begin, range.size()));
}

// `gradients` and `out` begin at element `base` of the own part.
void Optimizer::StepCpu(const Run& run, double lr, double gradient_factor, const at::Tensor& gradients, int64_t base,
                        const at::Tensor& out) {
  auto* p = own_.values.mutable_data_ptr<float>() + (own_.values_in_place ? run.shift : 0);
  const bool bf16 = gradients.scalar_type() == at::kBFloat16;
  const at::Tensor widened = bf16 && !out.defined() ? gradients.to(at::kFloat) : gradients;
  const auto* g = bf16 && out.defined() ? nullptr : static_cast<const float*>(widened.const_data_ptr()) - base;
  const double decay = groups_[static_cast<size_t>(run.group)].weight_decay;
  const auto t = static_cast<double>(run.step);
  if (config_.kind == OptimizerConfig::Kind::kSgd) {
    kernels::SgdStep step;
    step.lr = static_cast<float>(lr);
    step.l2 = static_cast<float>(decay);
    step.momentum = static_cast<float>(config_.momentum);
    step.gradient = static_cast<float>(gradient_factor);
    step.nesterov = config_.nesterov;
    step.first = run.step == 1;
    float* momentum = slots_.empty() ? nullptr : slots_[0].own.mutable_data_ptr<float>();
    ParallelFor(run.begin, run.end, kGrain, [&](int64_t begin, int64_t end) {
      kernels::Sgd(p + begin, g + begin, momentum == nullptr ? nullptr : momentum + begin,
                   static_cast<size_t>(end - begin), step);
    });
    return;
  }
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
  auto* m = slots_[0].own.mutable_data_ptr<float>();
  auto* v = slots_[1].own.mutable_data_ptr<float>();
  auto* to = out.defined() ? static_cast<uint16_t*>(out.data_ptr()) - base : nullptr;
  const auto* from = bf16 ? static_cast<const uint16_t*>(gradients.const_data_ptr()) - base : nullptr;
  ParallelFor(run.begin, run.end, kGrain, [&](int64_t begin, int64_t end) {
    const auto n = static_cast<size_t>(end - begin);
    if (to == nullptr) {
      kernels::Adam(p + begin, g + begin, m + begin, v + begin, n, step);
    } else if (from == nullptr) {
      kernels::AdamToBf16(p + begin, g + begin, m + begin, v + begin, to + begin, n, step);
    } else {
      kernels::AdamFromBf16(p + begin, from + begin, m + begin, v + begin, to + begin, n, step);
    }
  });
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

// The device's own multi-tensor kernels, one call per group.
void Optimizer::QueueStep(const at::Tensor& lr_factor, const at::Tensor& divisor, const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  const at::Tensor applies = 1 - found_inf;
  for (size_t i = 0; i < device_groups_.size(); ++i) {
    DeviceGroup& group = device_groups_[i];
    if (group.p.empty()) continue;
    for (at::Tensor& step : group.steps) step.add_(applies);
    const at::Tensor lr = lr_factor * (config_.lr * groups_[i].lr_scale);
    const double decay = groups_[i].weight_decay;
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
