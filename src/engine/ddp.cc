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

std::vector<FlatRange> PlanBuckets(const FlatParameters& flat, uint64_t first_bytes, uint64_t bytes,
                                   std::vector<size_t>* bucket_of) {
  std::vector<FlatRange> ranges;
  const auto& parameters = flat.parameters();
  uint64_t cap = first_bytes;
  int64_t begin = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    bucket_of->push_back(ranges.size());
    const int64_t end = i + 1 < parameters.size() ? parameters[i + 1].offset : flat.numel();
    if (static_cast<uint64_t>(end - begin) * sizeof(float) >= cap || i + 1 == parameters.size()) {
      ranges.push_back({begin, end});
      begin = end;
      cap = bytes;
    }
  }
  return ranges;
}

Ddp::Ddp(const DdpConfig& config, FlatParameters* flat, Ranks* ranks) : config_(config), flat_(flat), ranks_(ranks) {
  ranges_ = PlanBuckets(*flat, config.first_bucket_bytes, config.bucket_bytes, &bucket_of_);
  const auto& parameters = flat->parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    // A parameter that is frozen for now has none; the hook must be there when it thaws.
    at::Tensor parameter = parameters[i].tensor;
    const bool trains = parameter.requires_grad();
    parameter.requires_grad_(true);
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    parameter.requires_grad_(trains);
    const uintptr_t key = accumulator->add_post_hook(std::make_unique<Hook>(this, i));
    hooks_.emplace_back(std::move(accumulator), key);
  }
  works_.resize(ranges_.size());
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
  flat_->ResetGradients();
  touched_.assign(trainable_.size(), false);
  exposed_seconds_ = 0;
}

void Ddp::BeginBackward(bool last) {
  const std::lock_guard lock(mutex_);
  sending_ = last;
  repeated_.clear();
  next_bucket_ = 0;
  arrived_.assign(trainable_.size(), 0);
  missing_.assign(ranges_.size(), 0);
  if (config_.static_graph && !learnt_) return;
  for (size_t i = 0; i < trainable_.size(); ++i) {
    const bool comes = config_.static_graph ? expected_[i] > 0 : trainable_[i];
    if (comes) ++missing_[bucket_of_[i]];
  }
}

void Ddp::OnGradient(size_t parameter) {
  const std::lock_guard lock(mutex_);
  touched_[parameter] = true;
  const int count = ++arrived_[parameter];
  if (!sending_ || (config_.static_graph && !learnt_)) return;
  const size_t bucket = bucket_of_[parameter];
  if (bucket < next_bucket_) {
    repeated_ = flat_->parameters()[parameter].name;
    return;
  }
  if (count == (config_.static_graph ? expected_[parameter] : 1)) --missing_[bucket];
  // With find_unused a bucket may wait for a gradient that never comes; EndBackward sends it.
  LaunchReady();
}

void Ddp::LaunchReady() {
  while (next_bucket_ < ranges_.size() && missing_[next_bucket_] == 0) Launch(next_bucket_++);
}

void Ddp::Launch(size_t bucket) {
  if (!config_.reduce || (ranks_->size() == 1 && !config_.alone)) return;
  const FlatRange& range = ranges_[bucket];
  works_[bucket] = ranks_->tensors().AllReduce(flat_->gradients().narrow(0, range.begin, range.end - range.begin));
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
  if (!sending_) return Status::Ok();
  // Also on failure: the others wait for every bucket.
  while (next_bucket_ < ranges_.size()) Launch(next_bucket_++);
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

Status Ddp::FinishGradients() {
  const TimePoint start = Now();
  for (comm::TensorWork& work : works_) {
    LOCKSTEP_RETURN_IF_ERROR(work.Wait());
    work = comm::TensorWork();
  }
  used_ = trainable_;
  if (config_.find_unused || config_.static_graph) {
    std::vector<int64_t> marks(touched_.begin(), touched_.end());
    LOCKSTEP_RETURN_IF_ERROR(
        ranks_->host().AllReduce(marks.data(), marks.size(), comm::DType::kI64, comm::Op::kMax).Wait());
    for (size_t i = 0; i < marks.size(); ++i) used_[i] = marks[i] != 0;
  }
  exposed_seconds_ = SecondsSince(start);
  return Status::Ok();
}

}  // namespace lockstep::engine
