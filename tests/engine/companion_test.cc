// A second model that learns in the same step, before the main one.
#include <gtest/gtest.h>

#include "base/files.h"
#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

// The companion learns to tell the main model's outputs from the truth; the main model is pulled by it.
struct Critic : torch::nn::Module {
  Critic() { layer = register_module("layer", torch::nn::Linear(2, 1)); }
  torch::nn::Linear layer{nullptr};
  at::Tensor seen = register_buffer("seen", at::zeros({}));
};

class Adversary : public Toy {
 public:
  Status Build(const Config& config, uint64_t seed) override {
    LOCKSTEP_RETURN_IF_ERROR(Toy::Build(config, seed));
    critic = std::make_shared<Critic>();
    const at::NoGradGuard no_grad;
    for (auto& parameter : critic->parameters()) parameter.fill_(0.1);
    return Status::Ok();
  }
  std::optional<Companion> companion() override {
    OptimizerConfig optimizer;
    optimizer.lr = 5e-2;
    return Companion{"critic", critic.get(), optimizer};
  }
  Status Prepare(const Pass& pass, TensorBatch* batch) override {
    EXPECT_EQ(batch->lanes.size(), batch->ids.size());
    at::Tensor sign = at::empty({batch->count(), 1});
    for (int64_t i = 0; i < batch->count(); ++i) {
      data::Random random(pass.step * 1000 + batch->lanes[static_cast<size_t>(i)]);
      sign[i][0] = random.Chance(0.5) ? 1.0 : -1.0;
    }
    batch->fields["sign"] = sign;
    return Status::Ok();
  }
  Loss ComputeCompanionLoss(const Pass&, const TensorBatch& batch) override {
    if (batch.count() == 0) return {critic->layer->forward(at::zeros({1, 2})).sum() * 0, 0, {}};
    critic->seen.add_(1);
    const at::Tensor shown = at::where(batch["sign"] > 0, batch["y"], Out(batch).detach());
    return {at::mse_loss(critic->layer->forward(shown), batch["sign"]), static_cast<double>(batch.count()), {}};
  }
  Loss ComputeLoss(const TensorBatch& batch) override {
    if (batch.count() == 0) return {};
    const at::Tensor out = Out(batch);
    const at::Tensor pull = critic->layer->forward(out).mean();
    return {at::mse_loss(out, batch["y"]) - 0.01 * pull, static_cast<double>(batch.count()), {pull}};
  }
  Loss ComputeValidationLoss(const TensorBatch& batch) override {
    return {at::mse_loss(Out(batch), batch["y"]), static_cast<double>(batch.count()), {}};
  }
  std::vector<std::string> Parts() const override { return {"pull"}; }
  at::Tensor Out(const TensorBatch& batch) { return net->second->forward(at::tanh(net->first->forward(batch["x"]))); }
  std::shared_ptr<Critic> critic;
};

Job AdversaryJob(bool queued) {
  Job job;
  job.make = [] { return std::make_unique<Adversary>(); };
  job.options.queued = queued;
  return job;
}

TEST(Companion, LearnsOnAnyNumberOfRanksAsOnOne) {
  for (const bool queued : {false, true}) {
    const Outcome one = TrainOn(1, AdversaryJob(queued))[0];
    ASSERT_TRUE(one.status.ok()) << one.status.ToString();
    for (const int world : {2, 4}) {
      for (const Outcome& outcome : TrainOn(world, AdversaryJob(queued))) {
        ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
        EXPECT_LT(Difference(outcome.weights, one.weights), 1e-5) << world << " ranks, queued " << queued;
      }
    }
  }
}

TEST(Companion, SumsItsGradientsOverPasses) {
  Job passes = AdversaryJob(false);
  passes.config.train.micro_batch = 2;
  EXPECT_LT(Difference(TrainOn(1, passes)[0].weights, TrainOn(1, AdversaryJob(false))[0].weights), 1e-5);
}

TEST(Companion, MattersToTheMainModel) {
  struct Idle : Adversary {
    std::optional<Companion> companion() override {
      auto own = Adversary::companion();
      own->optimizer.lr = 1e-12;
      return own;
    }
  };
  Job still = AdversaryJob(false);
  still.make = [] { return std::make_unique<Idle>(); };
  EXPECT_GT(Difference(TrainOn(1, still)[0].weights, TrainOn(1, AdversaryJob(false))[0].weights), 1e-4);
}

TEST(Companion, IsSavedWithItsBuffersAndResumedExactly) {
  for (const bool queued : {false, true}) {
    for (const int world : {1, 2}) {
      const Outcome whole = TrainOn(world, AdversaryJob(queued))[0];
      const Result<TempDir> dir = TempDir::Create();
      Job job = AdversaryJob(queued);
      job.options.run_dir = dir->path();
      job.options.stop_at = 5;
      ASSERT_TRUE(TrainOn(world, job)[0].status.ok());
      job.options.stop_at.reset();
      const Outcome resumed = TrainOn(world, job)[0];
      ASSERT_TRUE(resumed.status.ok()) << resumed.status.ToString();
      EXPECT_EQ(Difference(resumed.weights, whole.weights), 0) << world << " ranks, queued " << queued;
    }
  }
}

TEST(Companion, AFailureOnOneRankIsToldByAll) {
  struct Breaks : Adversary {
    Loss ComputeCompanionLoss(const Pass& pass, const TensorBatch& batch) override {
      TORCH_CHECK(!(breaks && pass.step == 3), "the critic broke");
      return Adversary::ComputeCompanionLoss(pass, batch);
    }
    bool breaks = false;
  };
  Job job = AdversaryJob(false);
  job.make = [] { return std::make_unique<Breaks>(); };
  job.prepare = [](Toy& toy, int rank) { static_cast<Breaks&>(toy).breaks = rank == 1; };
  for (const Outcome& outcome : TrainOn(2, job)) {
    ASSERT_FALSE(outcome.status.ok());
    EXPECT_NE(outcome.status.message().find("the critic broke"), std::string::npos) << outcome.status.message();
  }
}

}  // namespace
}  // namespace lockstep::engine
