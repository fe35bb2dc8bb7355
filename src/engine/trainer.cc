#include "engine/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <cmath>

#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "data/random.h"
#include "engine/validation.h"

namespace lockstep::engine {

struct Trainer::Totals {
  double failed = 0, out_of_memory = 0, stop = 0, time_up = 0, bad_samples = 0;
  double loss = 0, weight = 0, samples = 0;
  double data_seconds = 0;  // this rank's, not summed
  std::vector<double> parts;

  Status SumOver(Ranks& ranks) {
    std::vector<double> v = {failed, out_of_memory, stop, time_up, bad_samples, loss, weight, samples};
    v.insert(v.end(), parts.begin(), parts.end());
    LOCKSTEP_RETURN_IF_ERROR(ranks.AllReduceSum(&v));
    failed = v[0], out_of_memory = v[1], stop = v[2], time_up = v[3], bad_samples = v[4];
    loss = v[5], weight = v[6], samples = v[7];
    parts.assign(v.begin() + 8, v.end());
    return Status::Ok();
  }
};

namespace {

bool IsOutOfMemory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string_view(error.what()).find("not enough memory") != std::string_view::npos;
}

std::string FirstLine(const char* text) { return Split(text, '\n').front(); }

}  // namespace

Result<RunEnd> Trainer::Run() {
  Result<RunEnd> end = Loop();
  // What was saved before an error is still worth its last bytes on disk.
  const Status saved = saving_.Finish(report_.get());
  const Result<std::string> curve = report_->Finish();
  if (!end.ok()) {
    // An error that all ranks have needs no alarm: the others would hear of it twice.
    if (!ranks_->agreed_to_fail()) ranks_->tensors().Abort(end.status().message());
    return end;
  }
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(saved.Context("the last checkpoint")));
  if (ranks_->is_main() && curve.ok() && !curve->empty()) report_->Say("loss curve: " + *curve);
  return end;
}

Result<RunEnd> Trainer::Loop() {
  Position& at = state_.position;
  while (at.step < config_.train.steps) {
    LOCKSTEP_RETURN_IF_ERROR(Step());
    const bool last = at.step == config_.train.steps;
    improved_ = false;
    const uint64_t every = config_.data.validation.every;
    if (sources_.validation && (last || (every > 0 && at.step % every == 0))) LOCKSTEP_RETURN_IF_ERROR(Validate());
    if (options_.stop_at && at.step >= *options_.stop_at && !last) stop_now_ = true;
    const bool ends = last || stop_now_ || converged_;
    LOCKSTEP_RETURN_IF_ERROR(saving_.Step(state_, ends || improved_, report_.get()));
    if (ends) {
      if (last) return RunEnd::kFinished;
      return converged_ ? RunEnd::kConverged : RunEnd::kStopped;
    }
  }
  return RunEnd::kFinished;
}

Status Trainer::Step() {
  const TimePoint start = Now();
  Position& at = state_.position;
  StepFacts facts;
  if (ApplyFreeze(config_.train.groups, at.step, *flat_)) strategy_->TrainableChanged();
  LOCKSTEP_RETURN_IF_ERROR(BroadcastBuffers());
  strategy_->BeginStep();
  Totals totals;
  totals.parts.resize(part_names_.size(), 0);
  Status failure;
  LOCKSTEP_RETURN_IF_ERROR(Passes(&totals, &failure));
  if (stop_.signal() != 0) totals.stop = 1;
  if (ranks_->is_main() && stop_.time_up()) totals.time_up = 1;
  totals.failed = failure.ok() ? 0 : 1;
  totals.bad_samples = static_cast<double>(bad_.size());
  const double data_seconds = totals.data_seconds;
  const TimePoint meeting = Now();
  LOCKSTEP_RETURN_IF_ERROR(totals.SumOver(*ranks_));
  LOCKSTEP_RETURN_IF_ERROR(strategy_->FinishGradients());
  facts.comm_seconds = SecondsSince(meeting);
  LOCKSTEP_RETURN_IF_ERROR(Judge(totals, failure));

  const Result<double> waited = saving_.BeforeUpdate();
  if (!waited.ok()) return waited.status();
  facts.save_seconds = *waited;
  facts.lr = config_.train.optimizer.lr * Factor(config_.train.schedule, at.step);
  LOCKSTEP_RETURN_IF_ERROR(Update(totals, &facts));
  LOCKSTEP_RETURN_IF_ERROR(strategy_->FinishParameters());

  ++at.step;
  at.samples += static_cast<uint64_t>(totals.samples);
  at.sampler = sampler_->state();
  facts.step = at.step;
  facts.samples = static_cast<uint64_t>(totals.samples);
  facts.loss = totals.weight > 0 ? totals.loss / totals.weight : std::nan("");
  for (size_t i = 0; i < part_names_.size(); ++i)
    facts.parts.emplace_back(part_names_[i], totals.parts[i] / totals.weight);
  last_loss_ = facts.loss;
  facts.data_seconds = data_seconds;
  facts.traffic = ranks_->tensors().traffic();
  facts.seconds = SecondsSince(start);
  LOCKSTEP_RETURN_IF_ERROR(report_->Samples(at.step, used_));
  report_->Step(facts);
  return Status::Ok();
}

// Forward and backward of this rank's share. A failure of its own is noted, not returned: the others must hear of it.
Status Trainer::Passes(Totals* totals, Status* failure) {
  bad_.clear();
  used_.clear();
  sampler_->Take();
  for (uint64_t pass = 0; pass < passes_; ++pass) {
    Result<FeedItem> item = feed_->Next();
    if (!item.ok() && failure->ok()) *failure = item.status().Context("data");
    strategy_->BeginBackward(/*last=*/pass + 1 == passes_);
    auto outcome = ParallelStrategy::Backward::kEmpty;
    if (item.ok()) {
      totals->data_seconds += item->wait_seconds;
      bad_.insert(bad_.end(), item->bad.begin(), item->bad.end());
      used_.insert(used_.end(), item->batch.ids.begin(), item->batch.ids.end());
      DescribeFirstBatch(item->batch);
      if (item->batch.count() > 0) outcome = OnePass(*item, totals, failure);
    }
    const Status complete = strategy_->EndBackward(outcome);
    if (!complete.ok() && failure->ok()) *failure = complete;
  }
  return Status::Ok();
}

// The commonest silent mistake is data in another range than the model expects.
void Trainer::DescribeFirstBatch(const TensorBatch& batch) {
  if (described_first_batch_ || batch.count() == 0 || !ranks_->is_main() || options_.quiet) return;
  described_first_batch_ = true;
  for (const auto& [name, tensor] : batch.fields) {
    const at::Tensor values = tensor.to(at::kFloat);
    report_->Say(fmt::format("first batch {} {} {}: {:.3g} to {:.3g}, mean {:.3g}", name,
                             c10::toString(tensor.scalar_type()), fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")),
                             values.min().item<double>(), values.max().item<double>(), values.mean().item<double>()));
  }
}

ParallelStrategy::Backward Trainer::OnePass(const FeedItem& item, Totals* totals, Status* failure) {
  const TensorBatch& batch = item.batch;
  uint64_t key = data::Fold(data::Fold(config_.run.seed, state_.position.step), item.planned.front().epoch);
  torch::manual_seed(data::Fold(key, item.planned.front().position) >> 1);
  try {
    Loss loss;
    {
      const AutocastGuard autocast(device_.type(), config_.train.precision);
      loss = recipe_->ComputeLoss(batch);
    }
    // Every pass adds its part of the mean over the nominal batch; what the batch really weighed is put right at the
    // end.
    const double share = loss.weight / static_cast<double>(config_.train.batch);
    const double scale = scaler_ ? scaler_->scale() : 1;
    loss.mean.mul(share * scale).backward();
    totals->loss += loss.mean.item<double>() * loss.weight;
    totals->weight += loss.weight;
    totals->samples += static_cast<double>(batch.count());
    for (size_t i = 0; i < loss.parts.size(); ++i) {
      totals->parts.at(i) += loss.parts[i].item<double>() * loss.weight;
    }
    return ParallelStrategy::Backward::kDone;
  } catch (const c10::Error& error) {
    if (IsOutOfMemory(error)) {
      totals->out_of_memory = 1;
      LogWarn("rank {}: out of memory in step {}: {}", ranks_->rank(), state_.position.step + 1,
              FirstLine(error.what_without_backtrace()));
    } else if (failure->ok()) {
      *failure = Status(Code::kRankFailed, fmt::format("rank {}, step {}: {}", ranks_->rank(), state_.position.step + 1,
                                                       FirstLine(error.what_without_backtrace())));
    }
  } catch (const std::exception& error) {
    if (failure->ok()) {
      *failure = Status(Code::kRankFailed,
                        fmt::format("rank {}, step {}: {}", ranks_->rank(), state_.position.step + 1, error.what()));
    }
  }
  return ParallelStrategy::Backward::kFailed;
}

// What the totals mean. The same on every rank; an error here ends the run everywhere.
Status Trainer::Judge(const Totals& totals, const Status& failure) {
  Position& at = state_.position;
  if (totals.failed > 0) return ranks_->Agree(failure);
  if (totals.out_of_memory > 0 && config_.train.on_oom == "stop") {
    return ranks_->Agree(Status(
        Code::kRankFailed,
        fmt::format("{} of {} ranks ran out of memory in step {}", totals.out_of_memory, ranks_->size(), at.step + 1),
        "lower train.micro_batch, set train.recompute: true, or train.on_oom: skip"));
  }
  for (const data::BadSample& bad : bad_) {
    LogWarn("rank {}: unreadable sample {} ({}), left out", ranks_->rank(), bad.name, bad.status.message());
  }
  at.bad_samples += static_cast<uint64_t>(totals.bad_samples);
  if (at.bad_samples > config_.data.bad_samples && totals.bad_samples > 0) {
    Status mine;
    if (!bad_.empty()) {
      mine = Status(Code::kEnvironment,
                    fmt::format("{} unreadable sample{} in this run, {} allowed; the last: {}: {}", at.bad_samples,
                                at.bad_samples == 1 ? "" : "s", config_.data.bad_samples, bad_.back().name,
                                bad_.back().status.message()),
                    "repair or remove the file, or raise data.bad_samples");
    }
    return ranks_->Agree(mine);
  }
  if (totals.stop > 0 || totals.time_up > 0) {
    if (!stop_now_) {
      report_->Say(totals.stop > 0
                       ? fmt::format("asked to stop{}: saving and ending after step {}",
                                     stop_.signal() != 0 ? " by " + SignalName(stop_.signal()) : "", at.step + 1)
                       : fmt::format("time limit reached: saving and ending after step {}", at.step + 1));
    }
    stop_now_ = true;
  }
  return Status::Ok();
}

// The optimizer step, or none: a function of the reduced gradients, which every rank has alike.
Status Trainer::Update(const Totals& totals, StepFacts* facts) {
  Position& at = state_.position;
  const double scale = scaler_ ? scaler_->scale() : 1;
  if (scaler_) facts->loss_scale = scale;
  const bool out_of_memory = totals.out_of_memory > 0;
  double factor = 0;
  double norm = std::nan("");
  if (totals.weight > 0 && !out_of_memory) {
    factor = static_cast<double>(config_.train.batch) / (totals.weight * scale);
    norm = GradientNorm(flat_->gradients()) * factor;
  }
  facts->gradient_norm = norm;
  const bool finite = std::isfinite(norm);
  facts->skipped = !finite;
  if (scaler_ && !out_of_memory) scaler_->Update(finite);
  if (finite) {
    at.bad_steps = 0;
    if (config_.train.clip > 0 && norm > config_.train.clip) factor *= config_.train.clip / (norm + 1e-6);
    optimizer_->Step(Factor(config_.train.schedule, at.step), factor, strategy_->used());
    average_->Update(at.step + 1);
    return Status::Ok();
  }
  ++at.bad_steps;
  if (at.bad_steps == 1 && !scaler_) {
    report_->Say(
        fmt::format("step {}: {}; no update, on any rank", at.step + 1,
                    out_of_memory ? "out of memory" : "the gradient is not finite, first in " + FirstBadParameter()));
  }
  if (at.bad_steps >= config_.train.bad_steps || (scaler_ && scaler_->exhausted())) {
    return ranks_->Agree(
        Status(Code::kRankFailed,
               fmt::format("no usable gradient for {} steps in a row, up to step {}; first not finite: {}",
                           at.bad_steps, at.step + 1, FirstBadParameter()),
               "lower train.optimizer.lr, check the input's range, or use bf16"));
  }
  return Status::Ok();
}

std::string Trainer::FirstBadParameter() const {
  const auto& parameters = flat_->parameters();
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    if (!std::isfinite(FlatParameters::View(flat_->gradients(), *it).sum().item<double>())) return it->name;
  }
  return "none";
}

Status Trainer::BroadcastBuffers() {
  if (!config_.train.broadcast_buffers || ranks_->size() == 1) return Status::Ok();
  const at::NoGradGuard no_grad;
  for (const auto& item : recipe_->model().named_buffers()) {
    LOCKSTEP_RETURN_IF_ERROR(ranks_->tensors().Broadcast(item.value(), 0).Wait());
  }
  return Status::Ok();
}

Status Trainer::Validate() {
  Position& at = state_.position;
  ValidationPlan plan;
  plan.source = sources_.validation;
  plan.batch = config_.data.validation.batch > 0 ? config_.data.validation.batch
                                                 : std::max<uint64_t>(1, plan_.largest_share / plan_.accumulation);
  if (config_.train.reproducible && config_.data.validation.batch == 0) plan.batch = 1;
  plan.loader.threads = config_.data.threads;
  plan.loader.prefetch = config_.data.prefetch;
  plan.loader.seed = config_.run.seed;
  plan.device = device_;
  plan.precision = config_.train.precision;
  // Swapping in the average changes the parameters a save may still be copying.
  const Result<double> waited = saving_.BeforeUpdate();
  if (!waited.ok()) return waited.status();
  average_->Swap();
  Result<ValidationResult> result = RunValidation(plan, *recipe_, *ranks_);
  average_->Swap();
  if (!result.ok()) return result.status();
  for (const data::BadSample& bad : result->bad) {
    LogWarn("rank {}: unreadable validation sample {} ({}), left out", ranks_->rank(), bad.name, bad.status.message());
  }
  const auto [wanted, more_is_better] = recipe_->Best();
  const std::string metric = config_.data.validation.best.empty() ? wanted : config_.data.validation.best;
  const bool up = metric == wanted ? more_is_better : metric != "loss";
  const double score = result->Find(metric);
  improved_ = std::isfinite(score) && (!at.best || (up ? score > *at.best : score < *at.best));
  at.stale_validations = improved_ ? 0 : at.stale_validations + 1;
  if (improved_) {
    at.best = score;
    at.best_step = at.step;
  }
  if (ranks_->is_main()) {
    report_->Validation(at.step, result->means);
    if (result->picture) {
      const Result<std::string> path = report_->Show("reconstruction", at.step, *result->picture);
      if (!path.ok()) LogWarn("{}", path.status().message());
    }
  }
  if (config_.data.validation.patience > 0 && at.best && at.stale_validations >= config_.data.validation.patience) {
    converged_ = true;
    report_->Say(fmt::format("no better {} than {:.4f} (step {}) in {} validations: ending", metric, *at.best,
                             at.best_step, at.stale_validations));
  }
  return Status::Ok();
}

}  // namespace lockstep::engine
