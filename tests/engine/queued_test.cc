// Updates that are queued on the device and settled later, as on a GPU, give what immediate ones give.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/files.h"
#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

// The fused kernels of torch and ours round differently; twelve steps at lr 1e-2.
constexpr double kQueuedTolerance = 1e-5;

Job Queued(Job job) {
  job.options.queued = true;
  return job;
}

TEST(Queued, GivesWhatImmediateUpdatesGive) {
  for (const auto kind : {OptimizerConfig::Kind::kAdamW, OptimizerConfig::Kind::kAdam, OptimizerConfig::Kind::kSgd}) {
    Job job;
    job.config.train.optimizer.kind = kind;
    job.config.train.optimizer.momentum = kind == OptimizerConfig::Kind::kSgd ? 0.9 : 0;
    job.config.train.clip_norm = 0.1;
    const Outcome now = TrainOn(1, job)[0];
    for (const int world : {1, 2, 4}) {
      for (const Outcome& queued : TrainOn(world, Queued(job))) {
        ASSERT_TRUE(queued.status.ok()) << queued.status.ToString();
        EXPECT_LT(Difference(queued.weights, now.weights), kQueuedTolerance) << world << " ranks";
        EXPECT_NEAR(queued.loss, now.loss, 1e-5);
      }
    }
  }
}

TEST(Queued, SkipsAStepWhoseGradientIsNotFiniteOnOneRank) {
  Job job;
  job.config.train.ema.decay = 0.5;
  job.prepare = [](Toy& toy, int rank) {
    auto steps = std::make_shared<int>(0);
    toy.before_loss = [&toy, rank, steps](const TensorBatch&) {
      toy.factor = rank == 0 && ++*steps == 4 ? std::numeric_limits<double>::infinity() : 1;
    };
  };
  const Outcome now = TrainOn(2, job)[0];
  for (const Outcome& queued : TrainOn(2, Queued(job))) {
    ASSERT_TRUE(queued.status.ok()) << queued.status.ToString();
    EXPECT_LT(Difference(queued.weights, now.weights), kQueuedTolerance);
    EXPECT_EQ(queued.position.bad_steps, 0u);
  }
  // The control: without the bad step the weights are others.
  job.prepare = nullptr;
  EXPECT_GT(Difference(TrainOn(2, job)[0].weights, now.weights), 100 * kQueuedTolerance);
}

TEST(Queued, EndsTheRunOnAllRanksWhenNoGradientIsFinite) {
  Job job;
  job.config.train.bad_steps = 3;
  job.prepare = [](Toy& toy, int) { toy.factor = std::nan(""); };
  for (const Outcome& outcome : TrainOn(2, Queued(job))) {
    EXPECT_FALSE(outcome.status.ok());
    EXPECT_NE(outcome.status.message().find("no usable gradient for 3 steps in a row, up to step 3"), std::string::npos)
        << outcome.status.message();
  }
}

TEST(Queued, KeepsItsLossScaleOnTheDeviceAndInCheckpoints) {
  Job job;
  job.config.train.precision = Precision::kFp16;
  job.config.train.scaler.initial = 1e9;  // overflows, several times
  job.config.train.scaler.interval = 4;
  const Outcome now = TrainOn(1, job)[0];
  const Outcome queued = TrainOn(1, Queued(job))[0];
  ASSERT_TRUE(queued.status.ok()) << queued.status.ToString();
  EXPECT_LT(Difference(queued.weights, now.weights), 1e-3);

  const Result<TempDir> dir = TempDir::Create();
  Job half = Queued(job);
  half.options.run_dir = dir->path();
  half.options.stop_at = 7;
  ASSERT_TRUE(TrainOn(1, half)[0].status.ok());
  half.options.stop_at.reset();
  const Outcome resumed = TrainOn(1, half)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.ToString();
  EXPECT_EQ(Difference(resumed.weights, queued.weights), 0);
}

TEST(Queued, ResumesExactlyOnAnyNumberOfRanksWithAverageAndFreezing) {
  for (const int world : {1, 2}) {
    Job job;
    job.config.train.ema.decay = 0.9;
    job.config.train.ema.every = 2;
    job.config.train.groups = {{.match = "first.*", .freeze_until = 5}};
    job = Queued(job);
    const Outcome whole = TrainOn(world, job)[0];
    const Result<TempDir> dir = TempDir::Create();
    job.options.run_dir = dir->path();
    for (const uint64_t stop : {3, 6, 11}) {
      job.options.stop_at = stop;
      ASSERT_TRUE(TrainOn(world, job)[0].status.ok());
    }
    job.options.stop_at.reset();
    EXPECT_EQ(Difference(TrainOn(world, job)[0].weights, whole.weights), 0) << world << " ranks";
  }
}

}  // namespace
}  // namespace lockstep::engine
