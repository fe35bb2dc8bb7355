// A second model that learns in the same step, before the main one.
#include <gtest/gtest.h>

#include "base/files.h"
#include "engine/toy_adversary.h"
#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

Job AdversaryJob(bool queued) {
  Job job;
  job.make = [] { return std::make_unique<Adversary>(); };
  job.options.queued = queued;
  return job;
}

TEST(Discriminator, LearnsOnAnyNumberOfRanksAsOnOne) {
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

TEST(Discriminator, SumsItsGradientsOverPasses) {
  Job passes = AdversaryJob(false);
  passes.config.train.micro_batch = 2;
  EXPECT_LT(Difference(TrainOn(1, passes)[0].weights, TrainOn(1, AdversaryJob(false))[0].weights), 1e-5);
}

TEST(Discriminator, MattersToTheMainModel) {
  struct Idle : Adversary {
    std::optional<Discriminator> discriminator() override {
      auto own = Adversary::discriminator();
      own->optimizer.lr = 1e-12;
      return own;
    }
  };
  Job still = AdversaryJob(false);
  still.make = [] { return std::make_unique<Idle>(); };
  EXPECT_GT(Difference(TrainOn(1, still)[0].weights, TrainOn(1, AdversaryJob(false))[0].weights), 1e-4);
}

TEST(Discriminator, IsSavedWithItsBuffersAndResumedExactly) {
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

TEST(Discriminator, LearnsInBf16AndInFp16WithALossScaleOfItsOwn) {
  for (const auto precision : {Precision::kBf16, Precision::kFp16}) {
    Job job = AdversaryJob(true);
    job.config.train.precision = precision;
    job.config.train.scaler.initial = 1e6;
    const Outcome whole = TrainOn(1, job)[0];
    ASSERT_TRUE(whole.status.ok()) << whole.status.ToString();
    const Result<TempDir> dir = TempDir::Create();
    job.options.run_dir = dir->path();
    job.options.stop_at = 5;
    ASSERT_TRUE(TrainOn(1, job)[0].status.ok());
    job.options.stop_at.reset();
    EXPECT_EQ(Difference(TrainOn(1, job)[0].weights, whole.weights), 0);
  }
}

TEST(Discriminator, AFailureOnOneRankIsToldByAll) {
  struct Breaks : Adversary {
    Loss ComputeDiscriminatorLoss(const Pass& pass, const TensorBatch& batch) override {
      TORCH_CHECK(!(breaks && pass.step == 3), "the critic broke");
      return Adversary::ComputeDiscriminatorLoss(pass, batch);
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
