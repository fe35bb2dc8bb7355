// Where a training goes on: the checkpoint that it finds or is told, and what it refuses.
#include <filesystem>
#include <fstream>
#include <map>

#include "base/files.h"
#include "base/json.h"
#include "engine/train_on.h"
#include "engine/trainer.h"
#include "paths.h"

namespace lockstep::engine {
namespace {

TEST(Resume, ContinuesAsIfNothingHadHappened) {
  Job job;
  job.config.train.ema.decay = 0.9;
  job.config.track.samples = true;
  const at::Tensor whole = TrainOn(2, job)[0].weights;
  Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  job.options.stop_at = 5;
  job.prepare = [](Toy& toy, int) {
    toy.note = "remember";
    toy.counter.fill_(7);
  };
  const std::vector<Outcome> first = TrainOn(2, job);
  EXPECT_EQ(first[0].end, RunEnd::kStopped);
  EXPECT_EQ(first[1].end, RunEnd::kStopped);
  job.options.stop_at.reset();
  Toy* seen = nullptr;
  std::string note;
  int64_t counter = 0;
  job.prepare = [&](Toy& toy, int rank) {
    if (rank != 1) return;
    seen = &toy;
    toy.before_loss = [&](const TensorBatch&) { note = seen->note, counter = seen->counter.sum().item<int64_t>(); };
  };
  const Outcome rest = TrainOn(2, job)[1];
  EXPECT_EQ(rest.end, RunEnd::kFinished);
  EXPECT_TRUE(at::equal(rest.weights, whole));
  EXPECT_EQ(note, "remember");
  EXPECT_EQ(counter, 21);
  // Every sample of an epoch exactly once: 7 whole batches of 8.
  std::map<std::pair<int64_t, int64_t>, int> times;
  for (const char* file : {"rank-0.jsonl", "rank-1.jsonl"}) {
    const JsonLines lines = *ReadJsonLines(*dir / ("samples/" + std::string(file)));
    for (const nlohmann::json& line : lines.lines) {
      for (const nlohmann::json& id : line["samples"]) ++times[{id[0].get<int64_t>(), id[2].get<int64_t>()}];
    }
  }
  EXPECT_EQ(times.size(), 96u);
  for (const auto& [sample, count] : times) EXPECT_EQ(count, 1);
}

TEST(Resume, TakesTheNewestGoodCheckpoint) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.config.checkpoint.every = 3;
  job.options.run_dir = dir->path();
  const at::Tensor whole = TrainOn(1, job)[0].weights;
  const std::string newest = *dir / "checkpoints/step-12/model.safetensors";
  std::fstream file(newest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-3, std::ios::end);
  file.put('\x55');
  file.close();
  const Outcome again = TrainOn(1, job)[0];  // from step 9
  EXPECT_TRUE(at::equal(again.weights, whole));
}

TEST(Resume, NoneStartsAnewAndLosesNothing) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  job.options.stop_at = 6;
  TrainOn(1, job);
  job.options.resume = "none";
  job.options.attempt = 1;
  EXPECT_EQ(TrainOn(1, job)[0].position.samples, 48u);
  EXPECT_TRUE(std::filesystem::exists(*dir / "checkpoints-before-attempt-1/step-6"));
  job.options.restarted = true;  // by the launcher, with the same command line: continues
  job.options.stop_at.reset();
  EXPECT_EQ(TrainOn(1, job)[0].position.samples, 96u);
  EXPECT_FALSE(std::filesystem::exists(*dir / "checkpoints-before-attempt-1/step-12"));
}

// A run that goes back, then ends early and is restarted, has gone on from there; what it left behind lies aside.
TEST(Resume, ANamedCheckpointIsWhereTheRunGoesOn) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = *dir / "run";
  job.options.stop_at = 6;
  ASSERT_TRUE(TrainOn(1, job)[0].status.ok());
  job.options.stop_at.reset();
  ASSERT_TRUE(TrainOn(1, job)[0].status.ok());
  job.config.train.optimizer.lr = 1e-3;
  Job other = job;
  other.options.run_dir = *dir / "other";
  other.options.stop_at = 2;
  ASSERT_TRUE(TrainOn(1, other)[0].status.ok());
  job.options.resume = other.options.resume = *dir / "run/checkpoints/step-6";
  job.options.attempt = other.options.attempt = 1;
  other.options.stop_at.reset();
  const at::Tensor whole = TrainOn(1, other)[0].weights;
  EXPECT_TRUE(std::filesystem::exists(*dir / "other/checkpoints-before-attempt-1/step-2"));

  job.options.stop_at = 7;
  ASSERT_EQ(TrainOn(2, job)[0].position.step, 7u);
  EXPECT_TRUE(std::filesystem::exists(*dir / "run/checkpoints-before-attempt-1/step-12"));
  EXPECT_EQ(std::filesystem::read_symlink(*dir / "run/checkpoints/latest"), "step-7");
  job.options.stop_at.reset();
  job.options.restarted = true;
  const Outcome restarted = TrainOn(1, job)[0];
  EXPECT_EQ(restarted.position.step, 12u);
  EXPECT_LT(Difference(restarted.weights, whole), 1e-6);
}

TEST(Resume, RefusesAnotherSeedAndAMissingPath) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  TrainOn(1, job);
  job.config.run.seed = 43;
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.status.code(), Code::kUsage);
    EXPECT_NE(outcome.status.message().find("run.seed 42, this run has 43"), std::string::npos)
        << outcome.status.message();
  }
  job.options.resume = *dir / "checkpoints/step-99";
  for (const Outcome& outcome : TrainOn(2, job)) EXPECT_EQ(outcome.status.code(), Code::kUsage);
}

TEST(Resume, RefusesOtherDataUnlessTold) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  job.options.stop_at = 5;
  TrainOn(1, job);
  job.options.stop_at.reset();
  job.prepare = [](Toy& toy, int) { toy.points = std::make_shared<Points>(40); };
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.status.code(), Code::kUsage);
    EXPECT_NE(outcome.status.message().find("other training data (points-61)"), std::string::npos)
        << outcome.status.message();
  }
  job.config.data.on_change = "new_epoch";
  const Outcome outcome = TrainOn(2, job)[0];
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_EQ(outcome.position.sampler.epoch, 2u);  // 5 batches of 40 points, then 2 more
}

TEST(Resume, ContinuesFromACheckpointOfFormatVersion1) {
  Job job;
  job.config.train.ema.decay = 0.9;
  const at::Tensor whole = TrainOn(1, job)[0].weights;
  Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  job.options.resume = SourceDir() + "/tests/record/version-1/step-5";
  for (const int world : {1, 2}) {
    ASSERT_TRUE(RemoveAll(*dir / "checkpoints").ok());
    const Outcome rest = TrainOn(world, job)[0];
    ASSERT_TRUE(rest.status.ok()) << rest.status.ToString();
    EXPECT_EQ(rest.position.samples, 96u);
    EXPECT_LT(Difference(rest.weights, whole), 1e-5);  // it was written on another processor
  }
}

}  // namespace
}  // namespace lockstep::engine
