#include "engine/ddp.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::engine {

class Ddp::Hook : public torch::autograd::FunctionPostHook {
 public:
  Hook(Ddp* owner, size_t parameter) : owner_(owner), parameter_(parameter) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& /*inputs*/) override {
    owner_->OnGradient(parameter_);
    return outputs;
  }

 private:
  Ddp* owner_;
  size_t parameter_;
};

Ddp::Ddp(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks) : Replicated(flat, ranks), config_(config) {
  const auto& parameters = flat->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    // A frozen parameter has no gradient accumulator; the hook must be there when it is unfrozen.
    at::Tensor parameter = parameters[i].tensor;
    const bool trains = parameter.requires_grad();
    parameter.requires_grad_(true);
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    parameter.requires_grad_(trains);
    const uintptr_t key = accumulator->add_post_hook(std::make_unique<Hook>(this, i));
    hooks_.emplace_back(std::move(accumulator), key);
  }
  works_.resize(buckets().size());
  if (config.reproducible) tree_.emplace(config.shards, flat->gradients(), ranks);
  TrainableChanged();
}

Ddp::~Ddp() {
  for (auto& [accumulator, key] : hooks_) accumulator->del_post_hook(key);
}

void Ddp::TrainableChanged() {
  trainable_.clear();
  for (const FlatParameter& parameter : flat_->parameters()) trainable_.push_back(parameter.tensor.requires_grad());
  used_ = trainable_;
  learnt_ = false;
}

void Ddp::BeginStep() {
  if (!config_.late_reset) flat_->ResetGradients();
  touched_.assign(trainable_.size(), false);
  exposed_seconds_ = 0;
  if (tree_) tree_->Begin();
}

void Ddp::BeginBackward(bool last) {
  const std::lock_guard lock(mutex_);
  sending_ = last && !tree_;
  repeated_.clear();
  next_bucket_ = 0;
  arrived_.assign(trainable_.size(), 0);
  missing_.assign(buckets().size(), 0);
  if (config_.static_graph && !learnt_) return;
  for (size_t i = 0; i < trainable_.size(); ++i) {
    const bool comes = config_.static_graph ? expected_[i] > 0 : trainable_[i];
    if (comes) ++missing_[bucket_of(i)];
  }
}

void Ddp::OnGradient(size_t parameter) {
  const std::lock_guard lock(mutex_);
  const bool touched = touched_[parameter];
  touched_[parameter] = true;
  const int count = ++arrived_[parameter];
  if (!flat_->gradients_are_views()) Take(parameter, count - 1, touched);
  if (!sending_ || (config_.static_graph && !learnt_)) return;
  const size_t bucket = bucket_of(parameter);
  if (bucket < next_bucket_) {
    repeated_ = flat_->parameters()[parameter].name;
    return;
  }
  if (count == (config_.static_graph ? expected_[parameter] : 1)) --missing_[bucket];
  // With find_unused a bucket may wait for a gradient that never comes; EndBackward sends it.
  LaunchReady();
}

void Ddp::Take(size_t parameter, int /*before*/, bool touched) {
  const at::NoGradGuard no_grad;
  const FlatParameter& p = flat_->parameters()[parameter];
  const at::Tensor to = FlatParameters::View(flat_->gradients(), p);
  at::Tensor& gradient = p.tensor.mutable_grad();
  // The buffer begins with zeros. Only what comes first and last may skip reading them: passes that are captured as one
  // graph do the same every time.
  touched || !sending_ ? to.add_(gradient) : to.copy_(gradient);
  gradient.reset();
}

void Ddp::LaunchReady() {
  while (next_bucket_ < buckets().size() && missing_[next_bucket_] == 0) Launch(next_bucket_++);
}

void Ddp::LaunchUpTo(size_t end) {
  while (next_bucket_ < end) Launch(next_bucket_++);
}

void Ddp::Launch(size_t bucket) {
  if (!exchanges()) return;
  const FlatRange& range = buckets()[bucket];
  works_[bucket] = ranks_->tensors().AllReduce(flat_->gradients().narrow(0, range.begin, range.size()));
}

Status Ddp::CheckAllCame() const {
  std::vector<std::string> absent;
  for (size_t i = 0; i < trainable_.size(); ++i) {
    if (trainable_[i] && !touched_[i]) absent.push_back(flat_->parameters()[i].name);
  }
  if (absent.empty()) return Status::Ok();
  const size_t count = absent.size();
  if (count > 8) absent.resize(8);
  return Status(Code::kUsage,
                fmt::format("{} parameter{} got no gradient in this step: {}{}", count, count == 1 ? "" : "s",
                            Join(absent, ", "), count > absent.size() ? ", ..." : ""),
                "if the loss really does not depend on them, freeze them or set train.find_unused: true");
}

Status Ddp::EndBackward(Backward outcome) {
  const std::lock_guard lock(mutex_);
  // An empty or failed shard adds what is in the buffer, zeros or a part: the step is then skipped by agreement.
  if (tree_) tree_->AddLeaf();
  if (!sending_) return Status::Ok();
  LaunchUpTo(buckets().size());  // also on failure: the others wait for every bucket
  sending_ = false;
  if (outcome != Backward::kDone) return Status::Ok();
  if (!repeated_.empty()) {
    return Status(Code::kUsage,
                  fmt::format("the gradient of {} came in several parts, after its bucket had been sent", repeated_),
                  "set train.static_graph: true if every step uses the same parameters");
  }
  if (config_.static_graph && !learnt_) {
    expected_ = arrived_;
    learnt_ = true;
  }
  return config_.find_unused || config_.static_graph ? Status::Ok() : CheckAllCame();
}

Status Ddp::WaitForExchange() {
  if (tree_) return tree_->Finish();
  std::optional<comm::TensorCommunicator::WaitScope> scope;
  if (exchanges()) scope.emplace(&ranks_->tensors());
  for (comm::TensorWork& work : works_) {
    LOCKSTEP_RETURN_IF_ERROR(work.Wait());
    work = comm::TensorWork();
  }
  return Status::Ok();
}

Status Ddp::AgreeOnUsed() {
  used_ = trainable_;
  if (!config_.find_unused && !config_.static_graph) return Status::Ok();
  std::vector<int64_t> marks(touched_.begin(), touched_.end());
  LOCKSTEP_RETURN_IF_ERROR(
      ranks_->host().AllReduce(marks.data(), marks.size(), comm::DType::kI64, comm::Op::kMax).Wait());
  for (size_t i = 0; i < marks.size(); ++i) used_[i] = marks[i] != 0;
  return Status::Ok();
}

Status Ddp::FinishGradients() {
  const TimePoint start = Now();
  LOCKSTEP_RETURN_IF_ERROR(WaitForExchange());
  LOCKSTEP_RETURN_IF_ERROR(AgreeOnUsed());
  flat_->ReadOwnedGradients();
  exposed_seconds_ = SecondsSince(start);
  return Status::Ok();
}

Status Ddp::EndCapture(bool last) {
  if (!last || !captures_exchange()) return Status::Ok();
  LOCKSTEP_RETURN_IF_ERROR(EndBackward(Backward::kDone));
  return FinishGradients();
}

Status Ddp::Replayed(bool last) {
  if (last && captures_exchange()) return Status::Ok();
  BeginBackward(last);
  touched_ = trainable_;
  return EndBackward(Backward::kDone);
}

}  // namespace lockstep::engine
