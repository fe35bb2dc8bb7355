// Steps of the trainer as CUDA graphs: the first steps run as they are, then each part of a step is captured and
// replayed from there on (captured_steps.h). What cannot be captured runs as before; why is said once.
#include <fmt/format.h>
#include <torch/utils.h>

#include "engine/trainer.h"

namespace lockstep::engine {

void Trainer::StartCapturing() {
  if (config_.train.graph == "off") return;
  std::string why;
  if (!device_.is_cuda()) {
    why = "the device is the CPU";
  } else if (config_.train.find_unused || config_.train.static_graph) {
    why = "train.find_unused and train.static_graph decide on the host";
  } else {
    why = learner_->strategy().WhyNotCaptured();
    if (learner_->waits_for_units()) why = "a unit waits for its parameters (train.offload)";
  }
  if (why.empty()) {
    captured_ = std::make_unique<CapturedSteps>(device_, [this](const std::string& text) { NotCaptured(text); });
  } else if (device_.is_cuda() || config_.train.graph == "require") {
    NotCaptured(why);
  }
}

void Trainer::NotCaptured(const std::string& why) {
  const std::string text = "steps are not captured as CUDA graphs: " + why;
  report_->Say(text);
  if (config_.train.graph == "require") {
    capturing_ = Status(Code::kUsage, text, "train.graph: auto lets them run as they are");
  }
}

bool Trainer::Captures(const TensorBatch& batch) const {
  return captured_ && captured_->on() && batch.count() > 0 && captured_->Takes(batch, steps_here_) && !warming_up();
}

// False: run it as it is.
bool Trainer::ReplayPass(Learner& learner, const Pass& pass, const FeedItem& item, double* weight, Status* exchange) {
  ParallelStrategy& strategy = learner.strategy();
  const bool last = pass.index + 1 == pass.count;
  const auto part =
      last && strategy.captures_exchange() ? CapturedSteps::Part::kPassWithExchange : CapturedSteps::Part::kPass;
  torch::manual_seed(item.Seed(config_.run.seed, state_.position.step));
  const std::optional<double> replayed =
      captured_->ReplayPass({part, IsDiscriminator(learner)}, item.batch, [&](const TensorBatch& inputs) {
        strategy.BeginCapture(last);
        const double w = Compute(learner, pass, inputs);
        stages_->End(StepStage::kBackward);
        *exchange = strategy.EndCapture(last);
        stages_->End(StepStage::kCollective);
        return w;
      });
  if (!replayed) return false;
  *weight = *replayed;
  if (last && !IsDiscriminator(learner)) ++captured_count_;
  const Status rest = strategy.Replayed(last);
  if (exchange->ok()) *exchange = rest;
  return true;
}

bool Trainer::ReplayUpdate(Learner& learner, bool ema, Status* outcome) {
  if (!learner.update_is_captured() || !captured_ || !captured_->on() || warming_up() || !captured_->has_passes())
    return false;
  const auto part = ema ? CapturedSteps::Part::kUpdateWithEma : CapturedSteps::Part::kUpdate;
  return captured_->ReplayUpdate({part, IsDiscriminator(learner)}, [&] { *outcome = learner.Apply(ema); });
}

}  // namespace lockstep::engine
