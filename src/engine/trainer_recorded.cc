// Steps of the trainer as recorded graphs: the first steps run as they are, then each part of a step (a pass, an
// update) is recorded and from there on replayed. What cannot be recorded, or a batch of another shape, runs as before;
// why is said once.
#include <fmt/format.h>
#include <torch/utils.h>

#include "engine/trainer.h"

namespace lockstep::engine {
namespace {

bool SameShapes(const TensorBatch& a, const TensorBatch& b) {
  if (a.fields.size() != b.fields.size()) return false;
  for (const auto& [name, tensor] : a.fields) {
    const auto it = b.fields.find(name);
    if (it == b.fields.end() || it->second.sizes() != tensor.sizes() ||
        it->second.scalar_type() != tensor.scalar_type()) {
      return false;
    }
  }
  return true;
}

}  // namespace

void Trainer::StartRecording() {
  if (config_.train.graph == "off") return;
  std::string why;
  if (!device_.is_cuda()) {
    why = "the device is the CPU";
  } else if (config_.train.find_unused || config_.train.static_graph) {
    why = "train.find_unused and train.static_graph decide on the host";
  }
  if (why.empty()) {
    recorder_ = std::make_unique<Recorder>(device_);
  } else if (device_.is_cuda() || config_.train.graph == "require") {
    StopRecording(why);
  }
}

bool Trainer::Records(const TensorBatch& batch) const {
  if (!recorder_ || warming_up() || batch.count() == 0) return false;
  return inputs_.fields.empty() || SameShapes(inputs_, batch);
}

void Trainer::StopRecording(const std::string& why) {
  recorder_.reset();
  sections_.clear();
  const std::string text = "steps are not recorded as a CUDA graph: " + why;
  report_->Say(text);
  if (config_.train.graph == "require") {
    recording_ = Status(Code::kUsage, text, "train.graph: auto lets them run as they are");
  }
}

Trainer::Section* Trainer::Record(const std::string& key, const std::function<double()>& work) {
  auto it = sections_.find(key);
  if (it != sections_.end()) return &it->second;
  Section section;
  Result<std::unique_ptr<Recording>> made = recorder_->Record([&] { section.weight = work(); });
  if (!made.ok()) {
    StopRecording(fmt::format("{}: {}", key, made.status().message()));
    return nullptr;
  }
  section.recording = std::move(*made);
  return &sections_.emplace(key, std::move(section)).first->second;
}

// False: run it as it is. Where the exchange of gradients can be recorded it is a part of the last pass, and overlaps
// with it; otherwise it follows.
bool Trainer::ReplayPass(Learner& learner, const Pass& pass, const FeedItem& item, double* weight, Status* exchange) {
  const bool last = pass.index + 1 == pass.count;
  const bool inside = last && learner.exchanges() && ranks_->tensors().recordable();
  if (inputs_.fields.empty()) {
    inputs_ = item.batch;
    for (auto& [name, tensor] : inputs_.fields) tensor = tensor.clone();
  }
  ParallelStrategy& strategy = learner.strategy();
  torch::manual_seed(item.Seed(config_.run.seed, state_.position.step));
  const std::string key =
      fmt::format("{}{}", IsCompanion(learner) ? "companion's pass" : "pass", inside ? ", last" : "");
  strategy.BeginBackward(inside);
  Section* section = Record(key, [&] {
    const double w = Compute(learner, pass, inputs_);
    if (inside) {
      *exchange = strategy.EndBackward(ParallelStrategy::Backward::kDone);
      if (exchange->ok()) *exchange = strategy.FinishGradients();
    }
    return w;
  });
  if (section == nullptr) return false;
  // The companion's pass may have left a graph for this one that remembers its inputs: they are the same, and a plain
  // copy would tell autograd that they are not.
  for (auto& [name, tensor] : inputs_.fields) tensor.variable_data().copy_(item.batch[name]);
  section->recording->Replay();
  *weight = section->weight;
  if (last && !IsCompanion(learner)) ++recorded_steps_;
  if (inside) return true;
  strategy.BeginBackward(last);
  strategy.Replayed();
  *exchange = strategy.EndBackward(ParallelStrategy::Backward::kDone);
  return true;
}

bool Trainer::ReplayUpdate(Learner& learner, bool averages) {
  // An average of every n-th step makes two kinds of update.
  if (!recorder_ || warming_up() || inputs_.fields.empty()) return false;
  const std::string key =
      fmt::format("{}update{}", IsCompanion(learner) ? "companion's " : "", averages ? " with average" : "");
  Section* section = Record(key, [&] {
    learner.Apply(averages);
    return 0.0;
  });
  if (section == nullptr) return false;
  section->recording->Replay();
  return true;
}

}  // namespace lockstep::engine
