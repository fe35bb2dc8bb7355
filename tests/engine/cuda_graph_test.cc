// Steps as replayed graphs. Without CUDA there is one thing to say: that, and why, nothing is replayed.
#include "engine/cuda_graph.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "engine/toy_adversary.h"
#include "engine/train_on.h"

#ifdef LOCKSTEP_CUDA
#include <c10/cuda/CUDAFunctions.h>
#endif

namespace lockstep::engine {
namespace {

#ifndef LOCKSTEP_CUDA

TEST(CudaGraph, NeedsCuda) {
  GraphPool capture(at::kCPU);
  const auto made = capture.Capture([] {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().message(), "graphs need CUDA, the device is cpu");
}

TEST(CudaGraph, IsRefusedOnTheCpuWhereItMustBe) {
  Job job;
  EXPECT_TRUE(TrainOn(1, job)[0].status.ok());
  job.config.train.graph = "require";
  const Outcome refused = TrainOn(1, job)[0];
  ASSERT_FALSE(refused.status.ok());
  EXPECT_NE(refused.status.message().find("the device is the CPU"), std::string::npos) << refused.status.message();
}

#else

const at::Device kGpu(at::kCUDA, 0);

struct Done {
  Status status;
  at::Tensor weights;
  double loss = 0;
  uint64_t replayed = 0;
};

Done Train(const Job& job, comm::Backend backend = comm::Backend::kHost) {
  comm::Bootstrap who;
  who.master_port = FreePort();
  comm::Options options;
  auto comm = comm::TensorCommunicator::Create(who, options, backend, kGpu);
  if (!comm.ok()) return {comm.status(), {}, 0, 0};
  Ranks ranks(*comm);
  const std::unique_ptr<Toy> toy = job.make();
  if (job.prepare) job.prepare(*toy, 0);
  TrainerOptions quiet = job.options;
  quiet.quiet = true;
  Trainer trainer(job.config, toy.get(), &ranks, kGpu, quiet);
  Done done;
  done.status = trainer.Setup();
  if (!done.status.ok()) return done;
  done.status = trainer.Run().status();
  c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  done.weights = trainer.flat().values().cpu();
  done.loss = trainer.last_loss().value_or(-1);
  done.replayed = trainer.captured_steps();
  return done;
}

Job LongJob() {
  Job job;
  job.config.train.steps = job.config.train.schedule.steps = 20;
  job.config.train.ema.decay = 0.9;
  return job;
}

void ExpectSameBits(Job job, uint64_t replayed) {
  const Done now = Train(job);
  job.config.train.graph = "off";
  const Done eager = Train(job);
  ASSERT_TRUE(now.status.ok()) << now.status.ToString();
  ASSERT_TRUE(eager.status.ok()) << eager.status.ToString();
  EXPECT_EQ(now.replayed, replayed);
  EXPECT_EQ(eager.replayed, 0u);
  EXPECT_EQ(Difference(now.weights, eager.weights), 0);
  EXPECT_EQ(now.loss, eager.loss);
}

TEST(CudaGraphs, StepsHaveTheBitsOfOthers) { ExpectSameBits(LongJob(), 17); }

TEST(CudaGraphs, StepsOfSeveralPassesToo) {
  Job job = LongJob();
  job.config.train.micro_batch = 2;
  job.config.train.ema.every = 3;
  ExpectSameBits(job, 17);
}

TEST(CudaGraphs, HalfPrecisionWithItsLossScaleToo) {
  Job job = LongJob();
  job.config.train.precision = Precision::kFp16;
  job.config.train.scaler.initial = 1e9;
  job.config.train.scaler.interval = 4;
  ExpectSameBits(job, 17);
}

TEST(CudaGraphs, ADiscriminatorWhoseTensorsAreKeptToo) {
  Job job = LongJob();
  job.make = [] { return std::make_unique<Adversary>(); };
  ExpectSameBits(job, 17);
  job.config.train.micro_batch = 4;
  ExpectSameBits(job, 17);
}

TEST(CudaGraphs, ReproducibleToo) {
  Job job = LongJob();
  job.config.train.reproducible = true;
  ExpectSameBits(job, 17);
}

TEST(CudaGraphs, ASmallerLastBatchRunsAsItIs) {
  Job job = LongJob();
  job.config.data.last_batch = data::LastBatch::kKeep;  // 61 points: seven batches of 8, one of 5
  ExpectSameBits(job, 15);
}

// Seven batches of 8 and one of 5 an epoch: the small one has graphs of its own from the fourth epoch on.
TEST(CudaGraphs, EveryShapeOfBatchesHasItsOwn) {
  Job job = LongJob();
  job.config.train.steps = job.config.train.schedule.steps = 48;
  job.config.data.last_batch = data::LastBatch::kKeep;
  ExpectSameBits(job, 48 - 3 - 3);
}

// The graphs of the frozen part of the run are dropped, and others made, in the middle of it.
TEST(CudaGraphs, AFreezeThatEndsMakesOthers) {
  Job job = LongJob();
  job.config.train.groups = {{.match = "first.*", .freeze_until = 10}};
  ExpectSameBits(job, 17);
}

TEST(CudaGraphs, TheExchangeOverNcclIsAPartOfThePass) {
  Job job = LongJob();
  const Done without = Train(job);
  job.options.alone = true;
  job.config.train.bucket = job.config.train.first_bucket = 64;
  const Done with = Train(job, comm::Backend::kNccl);
  ASSERT_TRUE(with.status.ok()) << with.status.ToString();
  EXPECT_EQ(with.replayed, 17u);
  EXPECT_EQ(Difference(with.weights, without.weights), 0);
}

TEST(CudaGraphs, WhatWaitsForTheDeviceRunsAsItIsOrIsRefused) {
  Job job = LongJob();
  job.prepare = [](Toy& toy, int) {
    toy.before_loss = [](const TensorBatch& batch) { ASSERT_TRUE(std::isfinite(batch["x"].sum().item<double>())); };
  };
  const Done done = Train(job);
  EXPECT_TRUE(done.status.ok()) << done.status.ToString();
  EXPECT_EQ(done.replayed, 0u);
  EXPECT_EQ(Difference(done.weights, Train(LongJob()).weights), 0);
  job.config.train.graph = "require";
  const Done refused = Train(job);
  EXPECT_FALSE(refused.status.ok());
  EXPECT_NE(refused.status.message().find("not captured"), std::string::npos) << refused.status.message();
}

// Any wait of the host for the device inside torch is an error here; the control shows that it would be.
TEST(CudaGraphs, NoStepWaitsForTheDeviceRecordedOrNot) {
  for (const char* graph : {"auto", "off"}) {
    Job job = LongJob();
    job.config.train.graph = graph;
    job.config.train.precision = Precision::kFp16;
    job.make = [] { return std::make_unique<Adversary>(); };
    job.prepare = [](Toy& toy, int) {
      static_cast<Adversary&>(toy).after_prepare = [] {
        c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
      };
    };
    const Done done = Train(job);
    EXPECT_TRUE(done.status.ok()) << done.status.ToString();
    // The control: a loss that reads a value back does not get away with it.
    job.prepare = [&, prepare = job.prepare](Toy& toy, int rank) {
      prepare(toy, rank);
      static_cast<Adversary&>(toy).factor = -1;
    };
    EXPECT_FALSE(Train(job).status.ok());
  }
}

TEST(CudaGraphs, ResumesExactly) {
  for (const bool discriminator : {false, true}) {
    Job job = LongJob();
    if (discriminator) job.make = [] { return std::make_unique<Adversary>(); };
    job.config.train.precision = Precision::kBf16;
    const Done whole = Train(job);
    const Result<TempDir> dir = TempDir::Create();
    job.options.run_dir = dir->path();
    for (const uint64_t stop : {2, 11, 15}) {
      job.options.stop_at = stop;
      ASSERT_TRUE(Train(job).status.ok());
    }
    job.options.stop_at.reset();
    EXPECT_EQ(Difference(Train(job).weights, whole.weights), 0) << discriminator;
  }
}

#endif

}  // namespace
}  // namespace lockstep::engine
