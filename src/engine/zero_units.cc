// Stage 3 of ZeRO: when the parameters of a unit are there.
#include <fmt/format.h>

#include "engine/operator_inputs.h"
#include "engine/zero.h"

namespace lockstep::engine {

// While it lives, every unit is whole.
class Zero::AllUnits : public WholeParameters {
 public:
  explicit AllUnits(Zero* zero) : zero_(zero) { zero_->whole_ = true; }
  ~AllUnits() override {
    zero_->whole_ = false;
    zero_->ReleaseAll();
  }

 private:
  Zero* zero_;
};

Result<std::unique_ptr<ParallelStrategy::WholeParameters>> Zero::Gather() {
  if (!sharded()) return std::make_unique<WholeParameters>();
  const std::lock_guard lock(mutex_);
  auto all = std::make_unique<AllUnits>(this);
  for (size_t u = 0; u < units_.size(); ++u) units_[u]->Start();
  for (size_t u = 0; u < units_.size(); ++u) {
    LOCKSTEP_RETURN_IF_ERROR(units_[u]->Wait());
    Need(u);
  }
  return std::unique_ptr<WholeParameters>(std::move(all));
}

void Zero::Need(size_t unit) {
  GatheredBuffer& one = *units_[unit];
  if (!one.started() && one.numel() > 0) live_ += one.numel();
  one.Start();
  const Status status = one.Wait();
  TORCH_CHECK(status.ok(), status.ToString());
  if (placed_[unit] || one.numel() == 0) return;
  flat_->Place(static_cast<int>(unit), one.buffer());
  placed_[unit] = true;
}

void Zero::LetGo(size_t unit) {
  GatheredBuffer& one = *units_[unit];
  if (!one.started()) return;
  one.Release();
  live_ -= one.numel();
  if (placed_[unit]) flat_->Place(static_cast<int>(unit), {});
  placed_[unit] = false;
}

void Zero::ReleaseAll() {
  if (whole_) return;
  for (size_t u = 0; u < units_.size(); ++u) LetGo(u);
  live_ = 0;
}

// The units that come next are gathered while this one computes.
void Zero::StartAhead() {
  int64_t ahead = 0;
  for (size_t i = 0; ahead < config_.zero.prefetch; ++i) {
    const std::optional<UnitUse> use = order_->Expected(i);
    if (!use) return;
    GatheredBuffer& next = *units_[use->unit];
    if (next.started()) continue;
    if (live_ + next.numel() > config_.zero.live) return;
    next.Start();
    live_ += next.numel();
    ahead += next.numel();
  }
}

void Zero::BeforeUnit(size_t unit, Phase phase) {
  const std::lock_guard lock(mutex_);
  if (whole_) return;
  const bool expected = order_->Use({unit, phase == Phase::kBackward});
  if (!expected) {  // what was gathered for another order goes
    for (size_t u = 0; u < units_.size(); ++u) {
      if (u != unit && !placed_[u]) LetGo(u);
    }
  }
  Need(unit);
  if (in_pass_) StartAhead();
}

void Zero::AfterUnit(size_t unit, Phase phase) {
  const std::lock_guard lock(mutex_);
  if (whole_) return;
  // A unit's gradients leave with it, so that all ranks make the same calls in the same order.
  if (phase == Phase::kBackward && exchanges_every_pass()) {
    LaunchUpTo(static_cast<size_t>(BucketsOf(static_cast<int>(unit)).end));
  }
  const int64_t distance = in_pass_ ? order_->ReuseDistance(unit) : UnitOrder::kNever;
  if (distance <= config_.zero.reuse_distance && live_ <= config_.zero.live) return;
  LetGo(unit);
}

std::string Zero::ExplainFailure(size_t unit, const std::function<void()>& again) {
  const auto unit_of = [&](size_t parameter) {
    return flat_->layout().GroupOf(flat_->layout().parameters()[parameter].bucket);
  };
  std::map<const c10::TensorImpl*, size_t> absent;
  for (size_t i = 0; i < flat_->parameters().size(); ++i) {
    const int group = unit_of(i);
    if (group < 0 || placed_[static_cast<size_t>(group)]) continue;
    absent.emplace(flat_->parameters()[i].tensor.unsafeGetTensorImpl(), i);
  }
  const std::optional<size_t> used = FirstUsed(absent, again);
  if (!used) return "";
  return fmt::format(
      "unit {} uses the parameter {} of unit {}, which is not there: list it in the unit that uses it, or in none "
      "where "
      "several do (Recipe::Units)",
      config_.units[unit].name, flat_->parameters()[*used].name,
      config_.units[static_cast<size_t>(unit_of(*used))].name);
}

Status Zero::SitOut() {
  if (!sharded()) return Status::Ok();
  const std::lock_guard lock(mutex_);
  order_->Begin();
  in_pass_ = true;
  try {
    RunRest();
    ReleaseAll();
  } catch (const c10::Error& error) {
    return Status(Code::kRankFailed, error.what_without_backtrace());
  }
  in_pass_ = false;
  return Status::Ok();
}

// Instead of the rest of a pass that this rank cannot run.
void Zero::RunRest() {
  for (const UnitUse& use : order_->Rest()) {
    const Phase phase = use.backward ? Phase::kBackward : Phase::kForward;
    BeforeUnit(use.unit, phase);
    AfterUnit(use.unit, phase);
  }
}

}  // namespace lockstep::engine
