#include "engine/trainer.h"

#include <fmt/format.h>

#include <cmath>

#include "base/exit_codes.h"
#include "base/log.h"
#include "engine/validation.h"

namespace lockstep::engine {
Result<RunEnd> Trainer::Run() {
  Result<RunEnd> end = Loop();
  if (end.ok() && profile_->running()) LOCKSTEP_RETURN_IF_ERROR(TurnProfile());
  const bool more = end.ok() && *end == RunEnd::kFinished && options_.phase.index + 1 < options_.phase.count;
  if (const uint64_t done = options_.steps_before + steps_here_;
      end.ok() && !more && profile_->Missed(done) && ranks_->is_main()) {
    LogWarn("track.profile: there is no trace: it was to begin with step {} of this process, which did {}",
            profile_->first(), done);
  }
  // What was saved before an error is still worth its last bytes on disk.
  const Status saved = saving_.Finish(report_.get(), !end.ok());
  track::StreamEnd outcome;
  outcome.preempted = end.ok() && *end == RunEnd::kStopped;
  outcome.exit_code = !end.ok() ? 1 : outcome.preempted ? kExitResume : 0;
  const Result<std::string> curve = report_->Finish(outcome);
  if (end.ok()) {
    if (const Status agreed = ranks_->Agree(saved.Context("the last checkpoint")); !agreed.ok()) end = agreed;
  } else if (!ranks_->agreed_to_fail()) {
    // An error that all ranks have needs no alarm: the others would hear of it twice.
    ranks_->tensors().Abort(end.status().message());
  }
  if (end.ok() && ranks_->is_main() && curve.ok() && !curve->empty()) report_->Say("loss curve: " + *curve);
  report_->AwaitUpload([&] { return more || !end.ok() || outcome.preempted || stop_.signal() != 0; });
  return end;
}

Result<RunEnd> Trainer::Loop() {
  Position& at = state_.position;
  while (at.step < config_.train.steps) {
    LOCKSTEP_RETURN_IF_ERROR(Step());
    const bool last = at.step == config_.train.steps;
    improved_ = false;
    const uint64_t every = config_.data.validation.every;
    if (sources_.validation && (last || (every > 0 && counted(at.step) % every == 0)))
      LOCKSTEP_RETURN_IF_ERROR(Validate());
    if (options_.stop_at && at.step >= *options_.stop_at && !last) stop_now_ = true;
    const bool ends = last || stop_now_ || converged_;
    saving_.Poll(report_.get());
    if (ends || improved_ || save_due_) {
      stages_->Begin();
      LOCKSTEP_RETURN_IF_ERROR(Save(ends || improved_));
      stages_->End(StepStage::kCheckpoint);
    }
    if (ends) {
      if (last) return RunEnd::kFinished;
      return converged_ ? RunEnd::kConverged : RunEnd::kStopped;
    }
  }
  return RunEnd::kFinished;
}

// All ranks come here together, so that what lies on several of them can be gathered.
Status Trainer::Save(bool now) {
  LOCKSTEP_RETURN_IF_ERROR(SettleAll());
  learner_->Finish();
  if (!options_.run_dir.empty()) LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(recipe_->Gather()));
  return saving_.Save(state_, now, report_.get());
}

Status Trainer::BroadcastBuffers() {
  if (!config_.train.broadcast_buffers || ranks_->size() == 1) return Status::Ok();
  const at::NoGradGuard no_grad;
  for (const auto& item : recipe_->model().named_buffers()) {
    LOCKSTEP_RETURN_IF_ERROR(ranks_->tensors().Broadcast(item.value(), 0).Wait());
  }
  return Status::Ok();
}

std::pair<std::string, bool> Trainer::BestScore() const {
  const auto [wanted, more_is_better] = recipe_->Best();
  const std::string metric = config_.data.validation.best.empty() ? wanted : config_.data.validation.best;
  return {metric, metric == wanted ? more_is_better : metric != "loss"};
}

Status Trainer::Validate() {
  LOCKSTEP_RETURN_IF_ERROR(SettleAll());
  learner_->Finish();
  Position& at = state_.position;
  ValidationPlan plan;
  plan.source = sources_.validation;
  plan.batch = config_.data.validation.batch > 0 ? config_.data.validation.batch
                                                 : std::max<uint64_t>(1, plan_.largest_share / plan_.accumulation);
  if (config_.train.reproducible && config_.data.validation.batch == 0) plan.batch = 1;
  plan.loader.threads = config_.data.threads;
  plan.loader.prefetch = config_.data.prefetch;
  plan.loader.timeout = config_.data.timeout;
  plan.loader.seed = config_.run.seed;
  plan.device = device_;
  plan.precision = config_.train.precision;
  // Swapping in the EMA changes the parameters a save may still be copying.
  const Result<double> waited = saving_.BeforeUpdate();
  if (!waited.ok()) return waited.status();
  learner_->ema().Swap();
  LOCKSTEP_RETURN_IF_ERROR(learner_->strategy().PublishParameters());
  Result<ValidationResult> result = RunValidation(plan, *recipe_, *ranks_, learner_->strategy());
  learner_->ema().Swap();
  LOCKSTEP_RETURN_IF_ERROR(learner_->strategy().PublishParameters());
  if (!result.ok()) return result.status();
  for (const data::BadSample& bad : result->bad) {
    if (!named_bad_validation_.insert(bad.id.index).second) continue;
    LogWarn("rank {}: unreadable validation sample {} ({}), left out", ranks_->rank(), bad.name, bad.status.message());
  }
  const auto [metric, up] = BestScore();
  const double score = result->Find(metric);
  improved_ = std::isfinite(score) && (!at.best || (up ? score > *at.best : score < *at.best));
  at.stale_validations = improved_ ? 0 : at.stale_validations + 1;
  if (improved_) {
    at.best = score;
    at.best_metric = metric;
    at.best_step = at.step;
  }
  if (ranks_->is_main()) {
    report_->Validation(at.step, std::move(*result));
  }
  if (config_.data.validation.patience > 0 && at.best && at.stale_validations >= config_.data.validation.patience) {
    converged_ = true;
    report_->Say(fmt::format("no better {} than {:.4f} (step {}) in {} validations: ending", metric, *at.best,
                             at.best_step, at.stale_validations));
  }
  return Status::Ok();
}

}  // namespace lockstep::engine
