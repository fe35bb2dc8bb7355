// One step of the trainer: passes, exchange, judgement, update, and the numbers that follow.
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/utils.h>

#include <cmath>
#include <numeric>

#include "base/json.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "data/fault.h"
#include "data/random.h"
#include "engine/histograms.h"
#include "engine/trainer.h"

namespace lockstep::engine {

struct Trainer::Totals {
  double failed = 0, out_of_memory = 0, stop = 0, time_up = 0, bad_samples = 0, save_due = 0;
  double weight = 0, discriminator_weight = 0, samples = 0;
  double data_seconds = 0;  // this rank's, not summed
  // Sums of losses: of this step, or where numbers come later, of the oldest that is not settled.
  std::vector<double> losses;

  Status SumOver(Ranks& ranks) {
    std::vector<double> v = {failed, out_of_memory, stop, time_up, bad_samples, save_due, weight, samples};
    const size_t own = v.size();
    v.insert(v.end(), losses.begin(), losses.end());
    LOCKSTEP_RETURN_IF_ERROR(ranks.AllReduceSum(&v));
    failed = v[0], out_of_memory = v[1], stop = v[2], time_up = v[3], bad_samples = v[4], save_due = v[5];
    weight = v[6], samples = v[7];
    losses.assign(v.begin() + static_cast<std::ptrdiff_t>(own), v.end());
    return Status::Ok();
  }
};

namespace {

bool IsOutOfMemory(const c10::Error& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         std::string_view(error.what()).find("not enough memory") != std::string_view::npos;
}

std::string FirstLine(const char* text) { return Split(text, '\n').front(); }

// The first numbers of both learners are sums over this rank's passes.
std::vector<double> SumsOf(const double* numbers, const Learner& learner, const Learner* discriminator) {
  std::vector<double> sums = learner.Read(numbers).sums;
  if (discriminator == nullptr) return sums;
  const std::vector<double> more = discriminator->Read(numbers + learner.numbers()).sums;
  sums.insert(sums.end(), more.begin(), more.end());
  return sums;
}

}  // namespace

Status Trainer::Step() {
  if (profile_->Due(options_.steps_before + steps_here_)) LOCKSTEP_RETURN_IF_ERROR(TurnProfile());
  const TraceScope step_scope(record::kStepScope, state_.position.step + 1);
  const TimePoint start = Now();
  Position& at = state_.position;
  if (!stages_) stages_.emplace(&ranks_->tensors(), ranks_->rank(), device_);
  stages_->SetStep(at.step + 1);
  stages_->Begin();
  if (learner_->ApplyFreeze(counted(at.step))) {
    LOCKSTEP_RETURN_IF_ERROR(SettleAll());
    if (captured_) captured_->Discard();
  }
  LOCKSTEP_RETURN_IF_ERROR(BroadcastBuffers());
  stages_->End(StepStage::kCollective);
  bad_.clear();
  used_.clear();
  kept_.clear();
  sampler_->Take();
  Totals totals;
  Status failure;
  learner_->strategy().BeginStep();
  learner_->BeginLosses();
  if (discriminator_) LOCKSTEP_RETURN_IF_ERROR(Discriminator(&totals, &failure));
  const uint64_t captured_before = captured_count_;
  if (totals.out_of_memory == 0) Passes(*learner_, &totals, &failure);
  if (failure.ok()) failure = capturing_;
  const double discriminator_weight = totals.discriminator_weight;

  totals.stop = stop_.signal() != 0 ? 1 : 0;
  totals.time_up = ranks_->is_main() && stop_.time_up() ? 1 : 0;
  totals.save_due = saving_.Due(counted(at.step + 1)) ? 1 : 0;
  totals.failed = failure.ok() ? 0 : 1;
  totals.bad_samples = static_cast<double>(bad_.size());
  const std::optional<std::vector<double>> known = OldestNumbers();
  if (known) totals.losses = SumsOf(known->data(), *learner_, discriminator_.get());
  const TimePoint summing = Now();
  {
    const TraceScope scope(record::kCollectiveScope);
    LOCKSTEP_RETURN_IF_ERROR(totals.SumOver(*ranks_));
    LOCKSTEP_RETURN_IF_ERROR(learner_->strategy().FinishGradients());
  }
  Pending pending;
  StepFacts& facts = pending.facts;
  facts.comm_seconds = SecondsSince(summing);
  stages_->End(StepStage::kCollective);
  if (queued_ && known) LOCKSTEP_RETURN_IF_ERROR(SettleOldest(totals.losses, *known));
  LOCKSTEP_RETURN_IF_ERROR(Judge(totals, failure));
  save_due_ = totals.save_due > 0;

  stages_->Begin();
  const Result<double> waited = [&] {
    const TraceScope scope(record::kCheckpointScope);
    return saving_.BeforeUpdate();
  }();
  if (!waited.ok()) return waited.status();
  stages_->End(StepStage::kCheckpoint);
  facts.save_seconds = *waited;
  facts.lr = config_.train.optimizer.lr * Factor(config_.train.schedule, counted(at.step));
  pending.out_of_memory = totals.out_of_memory > 0;
  pending.updated = totals.weight > 0 && !pending.out_of_memory;
  pending.ema = learner_->ema().Due(at.step + 1);
  pending.weight = totals.weight;
  pending.discriminator_weight = discriminator_weight;
  if (pending.updated) LOCKSTEP_RETURN_IF_ERROR(DrawHistograms(at.step + 1, totals.weight));
  if (pending.updated) LOCKSTEP_RETURN_IF_ERROR(Update(*learner_, totals.weight, pending.ema));
  {
    const TraceScope scope(record::kCollectiveScope);
    LOCKSTEP_RETURN_IF_ERROR(learner_->Publish());
  }
  stages_->End(StepStage::kOptimizer);

  ++at.step;
  at.samples += static_cast<uint64_t>(totals.samples);
  at.sampler = sampler_->state();
  facts.step = at.step;
  facts.samples = static_cast<uint64_t>(totals.samples);
  facts.data_seconds = totals.data_seconds;
  facts.bad_samples = at.bad_samples;
  facts.loader = feed_->stats();
  facts.traffic = ranks_->tensors().traffic();
  facts.more = recipe_->Metrics();
  facts.more.insert(facts.more.end(), OwnedMetrics().begin(), OwnedMetrics().end());
  for (size_t set = 0; sources_.mixture && set < sources_.mixture->parts(); ++set) {
    const auto draws = static_cast<double>(sources_.mixture->DrawsOf(set, at.sampler.position));
    facts.sets.emplace_back(draws / static_cast<double>(at.sampler.position),
                            draws / static_cast<double>(sources_.mixture->size(set)));
  }
  if (device_.is_cuda()) {
    facts.graph_replayed = captured_count_ > captured_before;
    if (!*facts.graph_replayed && config_.train.graph != "off" && !warming_up()) ++fallbacks_;
    facts.fallbacks = fallbacks_;
  }
  facts.stages = stages_->Take();
  facts.seconds = SecondsSince(start);
  if (auto_threads_) {
    const std::optional<data::ThreadPlan> threads =
        auto_threads_->Look(facts.loader, facts.seconds, facts.data_seconds);
    if (threads) feed_->SetThreads(threads->threads);
  }
  ++steps_here_;
  LOCKSTEP_RETURN_IF_ERROR(report_->Samples(at.step, used_));
  std::vector<at::Tensor> numbers = {learner_->Numbers()};
  if (discriminator_) numbers.push_back(discriminator_->Numbers());
  if (const at::Tensor seconds = stages_->TakeOnDevice(); seconds.defined()) numbers.push_back(seconds);
  readback_->Push(numbers);
  pending_.push_back(std::move(pending));
  if (queued_) return Status::Ok();
  return SettleOldest(totals.losses, readback_->Take());
}

Status Trainer::TurnProfile() {
  learner_->WaitForUpdate();
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  const bool ends = profile_->running();
  const Result<std::optional<record::TraceSummary>> seen = profile_->Turn();
  LOCKSTEP_RETURN_IF_ERROR(ranks_->Agree(seen.status().Context("track.profile")));
  if (!ends) return Status::Ok();
  const Result<std::vector<std::string>> told = ranks_->host().Gather(ToJsonLine((*seen)->ToJson()));
  if (!told.ok()) return told.status();
  if (!ranks_->is_main()) return Status::Ok();
  std::vector<record::TraceSummary> all;
  for (const std::string& text : *told) {
    const Result<nlohmann::json> one = ParseJson(text, "profile");
    if (one.ok()) all.push_back(record::TraceSummary::FromJson(*one));
  }
  const std::string folder = options_.run_dir + "/profile";
  if (const Status written = record::WriteProfileSummary(folder, all); !written.ok()) LogWarn("{}", written.message());
  report_->Say("profile: " + record::ProfileLine(all.front()) + "; " + folder + "/summary.txt");
  return Status::Ok();
}

// Of what every rank is about to update, all ranks together.
Status Trainer::DrawHistograms(uint64_t step, double weight) {
  if (config_.track.histograms == 0 || step % config_.track.histograms != 0) return Status::Ok();
  const double scale = learner_->scaler() != nullptr ? learner_->scaler()->scale() : 1;
  const double factor = static_cast<double>(config_.train.batch) / (weight * scale);
  Result<ParameterHistograms> histograms = HistogramsOf(learner_->flat(), factor, ranks_);
  if (!histograms.ok()) return histograms.status().Context("track.histograms");
  if (ranks_->is_main()) report_->Histograms(step, std::move(*histograms));
  return Status::Ok();
}

// The losses the ranks tell each other: of this step, or where they come later, of an older one. With this step queued
// behind it, waiting for the one before last costs the device nothing.
std::optional<std::vector<double>> Trainer::OldestNumbers() {
  if (!queued_) {
    std::vector<at::Tensor> numbers = {learner_->Numbers()};
    if (discriminator_) numbers.push_back(discriminator_->Numbers());
    const at::Tensor all = at::cat(numbers);
    const auto* first = static_cast<const double*>(all.const_data_ptr());
    return std::vector<double>(first, first + all.numel());
  }
  if (readback_->size() < 2) return std::nullopt;
  return readback_->Take();
}

Status Trainer::SettleAll() {
  while (!pending_.empty()) {
    const std::vector<double> numbers = readback_->Take();
    std::vector<double> sums = SumsOf(numbers.data(), *learner_, discriminator_.get());
    LOCKSTEP_RETURN_IF_ERROR(ranks_->AllReduceSum(&sums));
    LOCKSTEP_RETURN_IF_ERROR(SettleOldest(sums, numbers));
  }
  return Status::Ok();
}

// What the numbers of a step mean. The same on every rank; an error here ends the run everywhere.
Status Trainer::SettleOldest(const std::vector<double>& sums, const std::vector<double>& numbers) {
  Pending pending = std::move(pending_.front());
  pending_.pop_front();
  StepFacts& facts = pending.facts;
  Position& at = state_.position;
  const bool weighs = pending.weight > 0;
  const Learner::UpdateResult outcome = learner_->Read(numbers.data());
  const bool applied = pending.updated && outcome.applied;
  if (pending.updated) learner_->Settle(outcome, pending.ema);
  facts.loss = weighs ? sums[0] / pending.weight : std::nan("");
  for (size_t i = 0; i < part_names_.size(); ++i)
    facts.parts.emplace_back(part_names_[i], sums[1 + i] / pending.weight);
  if (discriminator_) {
    const Learner::UpdateResult second = discriminator_->Read(numbers.data() + learner_->numbers());
    if (pending.discriminator_weight > 0) discriminator_->Settle(second, false);
    const std::string name = recipe_->discriminator()->name;
    facts.parts.emplace_back(name + "/loss", sums[1 + part_names_.size()] / pending.discriminator_weight);
    facts.parts.emplace_back(name + "/grad_norm", second.norm);
    if (discriminator_->scaler() != nullptr) facts.parts.emplace_back(name + "/loss_scale", second.scale);
  }
  facts.gradient_norm = pending.updated ? outcome.norm : std::nan("");
  if (learner_->scaler() != nullptr) facts.loss_scale = outcome.scale;
  facts.skipped = !applied;
  stages_->Read(numbers, &facts.stages);
  last_loss_ = facts.loss;
  const uint64_t step = facts.step;
  report_->Step(facts);
  if (applied) {
    at.bad_steps = 0;
    return Status::Ok();
  }
  ++at.bad_steps;
  const auto bad_parameter = [&] {
    const std::string name = learner_->FirstBadParameter();
    return name.empty() ? std::string() : ", first in " + name;
  };
  if (at.bad_steps == 1 && learner_->scaler() == nullptr) {
    report_->Say(fmt::format("step {}: {}; no update, on any rank", step,
                             pending.out_of_memory ? "out of memory" : "the gradient is not finite" + bad_parameter()));
  }
  const bool exhausted = learner_->scaler() != nullptr && learner_->scaler()->exhausted();
  if (at.bad_steps < config_.train.bad_steps && !exhausted) return Status::Ok();
  return ranks_->Agree(Status(Code::kRankFailed,
                              fmt::format("no usable gradient for {} in a row, up to step {}{}",
                                          Count(static_cast<int64_t>(at.bad_steps), "step"), step, bad_parameter()),
                              "lower train.optimizer.lr, check the input's range, or use bf16"));
}

// The discriminator learns first: its passes, its update. Afterwards every rank knows whether that failed somewhere.
Status Trainer::Discriminator(Totals* totals, Status* failure) {
  discriminator_->strategy().BeginStep();
  discriminator_->BeginLosses();
  Passes(*discriminator_, totals, failure);
  Totals seen = *totals;
  seen.failed = failure->ok() ? 0 : 1;
  seen.weight = totals->discriminator_weight;
  LOCKSTEP_RETURN_IF_ERROR(seen.SumOver(*ranks_));
  LOCKSTEP_RETURN_IF_ERROR(discriminator_->strategy().FinishGradients());
  stages_->End(StepStage::kCollective);
  if (seen.failed > 0) return ranks_->Agree(*failure);
  totals->discriminator_weight = seen.weight;
  if (seen.out_of_memory > 0 || seen.weight == 0) {
    totals->discriminator_weight = 0;
    return Status::Ok();
  }
  const Result<double> waited = saving_.BeforeUpdate();
  if (!waited.ok()) return waited.status();
  stages_->End(StepStage::kCheckpoint);
  LOCKSTEP_RETURN_IF_ERROR(Update(*discriminator_, seen.weight, false));
  LOCKSTEP_RETURN_IF_ERROR(discriminator_->strategy().PublishParameters());
  stages_->End(StepStage::kOptimizer);
  return Status::Ok();
}

// Forward and backward of this rank's share. A failure of its own is noted, not returned: the others must hear of it.
void Trainer::Passes(Learner& learner, Totals* totals, Status* failure) {
  const bool again = discriminator_ && !IsDiscriminator(learner);  // the discriminator has fetched the batches
  for (uint64_t index = 0; index < passes_; ++index) {
    const Pass pass = {state_.position.step, index, passes_, counted(state_.position.step)};
    Result<FeedItem> item = again && index < kept_.size() ? Result<FeedItem>(kept_[index]) : Fetch(index, totals);
    if (!item.ok() && failure->ok()) *failure = item.status();
    const bool last = index + 1 == passes_;
    // A discriminator's statistics are taken over all ranks: those without samples take part.
    const bool runs = item.ok() && failure->ok() && (item->batch.count() > 0 || discriminator_);
    if (runs && discriminator_ && !again) kept_.push_back(*item);
    double weight = 0;
    Status exchange;
    if (runs && Captures(item->batch) && ReplayPass(learner, pass, *item, &weight, &exchange)) {
      if (!exchange.ok() && failure->ok()) *failure = exchange;
      AddWeight(learner, item->batch, weight, totals);
      continue;
    }
    learner.strategy().BeginBackward(last);
    auto outcome = ParallelStrategy::Backward::kEmpty;
    if (runs) outcome = OnePass(learner, pass, *item, totals, failure);
    const Status complete = learner.strategy().EndBackward(outcome);
    stages_->End(StepStage::kBackward);
    if (!complete.ok() && failure->ok()) *failure = complete;
  }
  for (uint64_t more = passes_; more < plan_.accumulation; ++more) {  // canonical shards may not divide evenly
    const Status out = learner.strategy().SitOut();
    stages_->End(StepStage::kBackward);
    if (!out.ok() && failure->ok()) *failure = out;
  }
}

Result<FeedItem> Trainer::Fetch(uint64_t index, Totals* totals) {
  stages_->Begin();
  Result<FeedItem> item = [&] {
    const TraceScope scope(record::kDataScope);
    return feed_->Next();
  }();
  stages_->End(StepStage::kData);
  if (!item.ok()) return item.status().Context("data");
  totals->data_seconds += item->wait_seconds;
  bad_.insert(bad_.end(), item->bad.begin(), item->bad.end());
  used_.insert(used_.end(), item->batch.ids.begin(), item->batch.ids.end());
  DescribeFirstBatch(item->batch);
  const Pass pass = {state_.position.step, index, passes_, counted(state_.position.step)};
  Status prepared;
  try {
    torch::manual_seed(item->Seed(config_.run.seed, state_.position.step));
    const at::NoGradGuard no_grad;
    prepared = recipe_->Prepare(pass, &item->batch);
  } catch (const std::exception& error) {
    prepared = Status(Code::kRankFailed,
                      fmt::format("rank {}, step {}: {}", ranks_->rank(), pass.step + 1, FirstLine(error.what())));
  }
  if (!prepared.ok()) return prepared;
  return item;
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

// Loss and gradients of one pass; the weight of its loss.
double Trainer::Compute(Learner& learner, const Pass& pass, const TensorBatch& batch) {
  Loss loss;
  {
    const TraceScope scope(record::kForwardScope);
    const AutocastGuard autocast(device_.type(), config_.train.precision);
    loss = IsDiscriminator(learner) ? recipe_->ComputeDiscriminatorLoss(pass, batch) : recipe_->ComputeLoss(batch);
  }
  stages_->End(StepStage::kForward);
  const TraceScope scope(record::kBackwardScope);
  if (loss.mean.defined()) learner.Backward(loss);
  return loss.weight;
}

// What a pass adds to the weight of the step; `loss_weight` is what its loss said.
void Trainer::AddWeight(const Learner& learner, const TensorBatch& batch, double loss_weight, Totals* totals) {
  if (IsDiscriminator(learner)) {
    totals->discriminator_weight += loss_weight;
    return;
  }
  totals->weight += recipe_->Weight(batch).value_or(loss_weight);
  totals->samples += static_cast<double>(batch.count());
}

ParallelStrategy::Backward Trainer::OnePass(Learner& learner, const Pass& pass, const FeedItem& item, Totals* totals,
                                            Status* failure) {
  const uint64_t step = state_.position.step + 1;
  try {
    torch::manual_seed(item.Seed(config_.run.seed, state_.position.step));
    learner.BeforePass();
    const double weight = Compute(learner, pass, item.batch);
    AddWeight(learner, item.batch, weight, totals);
    return item.batch.count() > 0 ? ParallelStrategy::Backward::kDone : ParallelStrategy::Backward::kEmpty;
  } catch (const c10::Error& error) {
    if (IsOutOfMemory(error) && !(discriminator_ && ranks_->size() > 1)) {
      totals->out_of_memory = 1;
      LogWarn("rank {}: out of memory in step {}: {}", ranks_->rank(), step, FirstLine(error.what_without_backtrace()));
    } else if (failure->ok()) {
      *failure = Status(Code::kRankFailed, fmt::format("rank {}, step {}: {}", ranks_->rank(), step,
                                                       FirstLine(error.what_without_backtrace())));
    }
  } catch (const std::exception& error) {
    if (failure->ok()) {
      *failure = Status(Code::kRankFailed, fmt::format("rank {}, step {}: {}", ranks_->rank(), step, error.what()));
    }
  }
  // The others may be inside a collective of the discriminator's statistics, which this rank will not reach.
  if (discriminator_ && ranks_->size() > 1 && !failure->ok()) ranks_->tensors().Abort(failure->message());
  return ParallelStrategy::Backward::kFailed;
}

// What the totals mean. The same on every rank; an error here ends the run everywhere.
Status Trainer::Judge(const Totals& totals, const Status& failure) {
  Position& at = state_.position;
  if (totals.failed > 0) return ranks_->Agree(failure);
  if (totals.out_of_memory > 0 && config_.train.on_oom == "stop") {
    return ranks_->Agree(OutOfMemory(fmt::format("{} of {} ran out of memory in step {}", totals.out_of_memory,
                                                 Count(ranks_->size(), "rank"), at.step + 1)));
  }
  if (totals.bad_samples > 0) LOCKSTEP_RETURN_IF_ERROR(LeaveOutBadSamples());
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

// Every rank learns which samples could not be read, so that each counts once and none is read again, whoever's share
// it falls into. Rare, so it may take two small sums of its own.
Status Trainer::LeaveOutBadSamples() {
  const auto me = static_cast<size_t>(ranks_->rank());
  std::vector<double> counts(static_cast<size_t>(ranks_->size()), 0);
  counts[me] = static_cast<double>(bad_.size());
  LOCKSTEP_RETURN_IF_ERROR(ranks_->AllReduceSum(&counts));
  const auto begin = counts.begin();
  const auto before = static_cast<size_t>(std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(me), 0.0));
  std::vector<double> indices(static_cast<size_t>(std::accumulate(begin, counts.end(), 0.0)), 0);
  for (size_t i = 0; i < bad_.size(); ++i) indices[before + i] = static_cast<double>(bad_[i].id.index);
  LOCKSTEP_RETURN_IF_ERROR(ranks_->AllReduceSum(&indices));

  nlohmann::json mine = nlohmann::json::array();
  for (const data::BadSample& bad : bad_) {
    mine.push_back({{"index", bad.id.index},
                    {"sample", bad.name},
                    {"class", data::FaultOf(bad.status)},
                    {"why", bad.status.message()}});
  }
  const Result<std::vector<std::string>> told = ranks_->host().Gather(ToJsonLine(mine));
  if (!told.ok()) return told.status();

  Position& at = state_.position;
  const data::BadSample* last = nullptr;
  const uint64_t known = known_bad_.size();
  if (ranks_->is_main()) report_->BadSamples(at.step + 1, *told, known_bad_);
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<uint64_t>(indices[i]);
    if (!known_bad_.insert(index).second) continue;
    feed_->LeaveOut(index);
    if (i < before || i - before >= bad_.size()) continue;
    last = &bad_[i - before];
    LogWarn("rank {}: unreadable sample {} ({}), left out from now on", ranks_->rank(), last->name,
            last->status.message());
  }
  at.bad_samples = known_bad_.size();
  const double budget = config_.data.bad_samples;
  const auto samples = static_cast<double>(sources_.train->size());
  const auto allowed = static_cast<uint64_t>(budget < 1 ? budget * samples : budget);
  if (at.bad_samples == known || at.bad_samples <= allowed) return Status::Ok();
  if (last == nullptr) return ranks_->Agree(Status::Ok());
  return ranks_->Agree(
      Status(Code::kEnvironment,
             fmt::format("{} unreadable sample{} in this run, {} allowed; the last: {}: {}", at.bad_samples,
                         at.bad_samples == 1 ? "" : "s", allowed, last->name, last->status.message()),
             "repair or remove the file, or raise data.bad_samples"));
}

// The optimizer step, or none: a function of the reduced gradients, which every rank has alike.
Status Trainer::Update(Learner& learner, double weight, bool ema) {
  if (!learner.in_sync()) {
    LOCKSTEP_RETURN_IF_ERROR(SettleAll());
    learner.Sync();
    if (captured_) captured_->Discard();
  }
  learner.Arm(IsDiscriminator(learner) ? 1 : Factor(config_.train.schedule, counted(state_.position.step)), weight);
  const TraceScope scope(record::kOptimizerScope);
  Status outcome;
  if (!ReplayUpdate(learner, ema, &outcome)) outcome = learner.Apply(ema);
  return outcome;
}

}  // namespace lockstep::engine
