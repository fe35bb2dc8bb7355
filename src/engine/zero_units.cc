// Stage 3 of ZeRO: when the parameters of a unit are there.
#include <fmt/format.h>

#include "engine/operator_inputs.h"
#include "engine/zero.h"

namespace lockstep::engine {

void Zero::Start(size_t unit) {
  if (started_[unit] || sizes_[unit] == 0) return;
  started_[unit] = true;
  live_ += sizes_[unit];
  units_[unit]->Start();
  for (const size_t group : frozen_of_[unit]) frozen_[group]->Start();
}

Status Zero::Wait(size_t unit) {
  Status status = units_[unit]->Wait();
  for (const size_t group : frozen_of_[unit]) {
    const Status one = frozen_[group]->Wait();
    if (status.ok()) status = one;
  }
  return status;
}

void Zero::Need(size_t unit) {
  Start(unit);
  const Status status = Wait(unit);
  TORCH_CHECK(status.ok(), status.ToString());
  if (placed_[unit] || sizes_[unit] == 0) return;
  if (units_[unit]->numel() > 0) flat_->Place(static_cast<int>(unit), units_[unit]->buffer());
  for (const size_t group : frozen_of_[unit]) flat_->frozen().Place(group, frozen_[group]->buffer());
  placed_[unit] = true;
}

void Zero::LetGo(size_t unit) {
  if (!started_[unit]) return;
  units_[unit]->Release();
  for (const size_t group : frozen_of_[unit]) frozen_[group]->Release();
  live_ -= sizes_[unit];
  if (placed_[unit]) {
    flat_->Place(static_cast<int>(unit), {});
    for (const size_t group : frozen_of_[unit]) flat_->frozen().Place(group, {});
  }
  started_[unit] = placed_[unit] = false;
}

void Zero::ReleaseAll() {
  for (size_t u = 0; u < units_.size(); ++u) LetGo(u);
  live_ = 0;
}

// The units that come next are gathered while this one computes.
void Zero::StartAhead() {
  int64_t ahead = 0;
  for (size_t i = 0; ahead < config_.zero.prefetch; ++i) {
    const std::optional<UnitUse> use = order_->Expected(i);
    if (!use) return;
    if (!StartNext(use->unit)) return;
    ahead += sizes_[use->unit];
  }
}

// False: too much is whole already.
bool Zero::StartNext(size_t unit) {
  if (started_[unit]) return true;
  if (live_ + sizes_[unit] > config_.zero.live) return false;
  Start(unit);
  return true;
}

void Zero::BeforeUnit(size_t unit, Phase phase) {
  const std::lock_guard lock(mutex_);
  if (evaluates_) {
    size_t brought = units_.size();
    while (brought != unit) Bring(brought = AgreeOnUnit(unit));
    return;
  }
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
  if (evaluates_) return LetGo(unit);
  // A unit's gradients leave with it, so that all ranks make the same calls in the same order.
  if (phase == Phase::kBackward && exchanges_every_pass()) {
    LaunchUpTo(static_cast<size_t>(BucketsOf(static_cast<int>(unit)).end));
  }
  const int64_t distance = in_pass_ ? order_->ReuseDistance(unit) : UnitOrder::kNever;
  if (distance <= config_.zero.reuse_distance && live_ <= config_.zero.live) return;
  LetGo(unit);
}

std::string Zero::ExplainFailure(size_t unit, const std::function<void()>& again) {
  std::map<const c10::TensorImpl*, size_t> absent;
  std::vector<std::pair<std::string, size_t>> names;  // and their units
  const auto add = [&](const at::Tensor& tensor, const std::string& name, size_t of) {
    if (placed_[of]) return;
    absent.emplace(tensor.unsafeGetTensorImpl(), names.size());
    names.emplace_back(name, of);
  };
  for (size_t i = 0; i < flat_->parameters().size(); ++i) {
    const int group = flat_->layout().GroupOf(flat_->layout().parameters()[i].bucket);
    if (group >= 0) add(flat_->parameters()[i].tensor, flat_->parameters()[i].name, static_cast<size_t>(group));
  }
  for (const FrozenParameter& one : flat_->frozen().parameters()) {
    add(one.tensor, one.name, flat_->frozen().groups()[one.group].unit);
  }
  const std::optional<size_t> used = FirstUsed(absent, again);
  if (!used) return "";
  return fmt::format(
      "unit {} uses the parameter {} of unit {}, which is not there: list it in the unit that uses it, or in none "
      "where several do (Recipe::Units)",
      config_.units[unit].name, names[*used].first, config_.units[names[*used].second].name);
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
    in_pass_ = false;
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
