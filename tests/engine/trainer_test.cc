#include "engine/trainer.h"

#include <filesystem>
#include <limits>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/train_on.h"
#include "record/checkpoint.h"
#include "record/checkpoint_folder.h"

namespace lockstep::engine {
namespace {

// Sums of 8 float32 gradients in another order: a few units in the last place, over 12 steps.
constexpr double kTrainerTolerance = 2e-6;

// Steps of the toy take microseconds, reading a point less: one thread is enough, and the weights do not depend on it.
TEST(Trainer, TheNumberOfDecoderThreadsFollowsMeasuredTimes) {
  Job job;
  job.config.data.threads = 4;
  const at::Tensor fixed = TrainOn(1, job)[0].weights;
  job.config.data.cores = 1;
  const Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  const Outcome chosen = TrainOn(1, job)[0];
  ASSERT_TRUE(chosen.status.ok()) << chosen.status.ToString();
  EXPECT_TRUE(at::equal(chosen.weights, fixed));
  std::vector<double> threads;
  for (const std::string& line : Split(*ReadFile(*dir / "metrics/rank-0.jsonl"), '\n')) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("scalars") && json["scalars"].contains("rank/data/threads")) {
      threads.push_back(json["scalars"]["rank/data/threads"].get<double>());
    }
  }
  ASSERT_GE(threads.size(), 6);
  EXPECT_EQ(threads.front(), 4);
  EXPECT_LT(threads.back(), 4) << "one core has no work for four threads";
}

TEST(Trainer, LossFalls) {
  Job job;
  job.config.train.steps = job.config.train.schedule.steps = 60;
  const Outcome done = TrainOn(1, job)[0];
  ASSERT_TRUE(done.status.ok()) << done.status.ToString();
  EXPECT_LT(done.loss, 0.1);
  EXPECT_EQ(done.position.step, 60u);
  EXPECT_EQ(done.position.samples, 480u);
}

TEST(Trainer, SeveralRanksTrainAsOneDoes) {
  const at::Tensor one = TrainOn(1, {})[0].weights;
  for (const int world : {2, 3, 4}) {
    for (const Outcome& outcome : TrainOn(world, {})) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      EXPECT_LT(Difference(outcome.weights, one), kTrainerTolerance) << world << " ranks";
    }
  }
}

TEST(Trainer, SeveralNodesTrainAsOneDoes) {
  Job job;
  job.nodes = {"a", "a", "b", "b"};
  const at::Tensor one = TrainOn(1, {})[0].weights;
  EXPECT_LT(Difference(TrainOn(4, job)[3].weights, one), kTrainerTolerance);
}

TEST(Trainer, ManySmallPassesEqualOneLarge) {
  const at::Tensor one = TrainOn(1, {})[0].weights;
  for (const uint64_t micro : {1, 3, 4}) {  // 3: passes of unequal size
    Job job;
    job.config.train.micro_batch = micro;
    EXPECT_LT(Difference(TrainOn(1, job)[0].weights, one), kTrainerTolerance) << "micro-batch " << micro;
    EXPECT_LT(Difference(TrainOn(2, job)[1].weights, one), kTrainerTolerance) << "micro-batch " << micro << ", 2 ranks";
  }
}

TEST(Trainer, AKeptSmallLastBatchIsTrainedOnByAllRanksTogether) {
  Job job;
  job.config.data.last_batch =
      data::LastBatch::kKeep;  // 61 points: the last batch of an epoch has 5, some ranks none or fewer
  job.config.train.steps = job.config.train.schedule.steps = 18;
  const Outcome one = TrainOn(1, job)[0];
  EXPECT_EQ(one.position.samples, 61u + 61u + 2 * 8u);
  for (const int world : {2, 4, 8})
    EXPECT_LT(Difference(TrainOn(world, job)[0].weights, one.weights), kTrainerTolerance);
}

TEST(Trainer, BucketsOfAnySizeGiveTheSameResult) {
  const at::Tensor whole = TrainOn(2, {})[0].weights;
  Job job;
  job.config.train.bucket = job.config.train.first_bucket = 64;
  EXPECT_TRUE(at::equal(TrainOn(2, job)[0].weights, whole));
}

TEST(Reproducible, HasTheSameBitsOnAnyNumberOfRanks) {
  Job job;
  job.config.train.reproducible = true;
  const at::Tensor one = TrainOn(1, job)[0].weights;
  for (const int world : {2, 3, 4, 8}) EXPECT_TRUE(at::equal(TrainOn(world, job)[0].weights, one)) << world << " ranks";
  EXPECT_FALSE(at::equal(TrainOn(3, {})[0].weights, one)) << "without it the bits differ, or this test could not fail";
}

TEST(Reproducible, SurvivesAChangeOfTheNumberOfRanksInTheMiddle) {
  Job job;
  job.config.train.reproducible = true;
  const at::Tensor one = TrainOn(1, job)[0].weights;
  Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  at::Tensor last;
  for (const auto& [world, until] : std::vector<std::pair<int, uint64_t>>{{4, 4}, {2, 9}, {1, 12}}) {
    job.options.stop_at = until;
    const Outcome outcome = TrainOn(world, job)[0];
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.position.step, until);
    last = outcome.weights;
  }
  EXPECT_TRUE(at::equal(last, one));
}

TEST(Validation, AnUnknownScoreIsRefusedBeforeTheFirstStep) {
  Job job;
  job.config.data.validation.best = "eror";
  job.prepare = [](Toy& toy, int) { toy.held_out = std::make_shared<Points>(7); };
  const Outcome outcome = TrainOn(1, job)[0];
  EXPECT_NE(outcome.status.message().find("did you mean 'error'"), std::string::npos) << outcome.status.message();
}

// Of both less is better, and every error is above the losses.
TEST(Validation, AnotherMetricBeginsWithItsOwnBest) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  job.prepare = [](Toy& toy, int) { toy.held_out = std::make_shared<Points>(7); };
  job.config.data.validation.best = "loss";
  const Outcome first = TrainOn(1, job)[0];
  ASSERT_TRUE(first.status.ok()) << first.status.ToString();
  EXPECT_EQ(first.position.best_metric, "loss");
  job.config.data.validation.best = "error";
  job.config.train.steps += 1;
  const Outcome second = TrainOn(1, job)[0];
  ASSERT_TRUE(second.status.ok()) << second.status.ToString();
  ASSERT_GT(*second.position.best, *first.position.best);
  EXPECT_EQ(second.position.best_metric, "error");
  EXPECT_EQ(second.position.best_step, job.config.train.steps);
}

TEST(Agreement, ARankThatIsAskedToStopStopsAll) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  std::atomic<bool> sent = false;
  job.prepare = [&](Toy& toy, int rank) {
    if (rank == 1)
      toy.before_loss = [&](const TensorBatch&) {
        if (!sent.exchange(true)) raise(SIGTERM);
      };
  };
  for (const Outcome& outcome : TrainOn(3, job)) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.end, RunEnd::kStopped);
    EXPECT_EQ(outcome.position.step, 1u);
  }
  EXPECT_TRUE(record::CheckpointReader::Open(*dir / "checkpoints/step-1").ok());
}

TEST(Agreement, ANonFiniteLossOnOneRankSkipsTheStepOnAll) {
  Job job;
  auto poison = [](Toy& toy, int rank) {
    auto calls = std::make_shared<int>(0);
    if (rank == 1) toy.before_loss = [&toy, calls](const TensorBatch&) { toy.factor = ++*calls == 3 ? INFINITY : 1; };
  };
  job.prepare = poison;
  const std::vector<Outcome> outcomes = TrainOn(2, job);
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_TRUE(outcome.weights.isfinite().all().item<bool>());
    EXPECT_EQ(outcome.position.step, 12u);
  }
  EXPECT_TRUE(at::equal(outcomes[0].weights, outcomes[1].weights));
  EXPECT_FALSE(at::equal(outcomes[0].weights, TrainOn(2, {})[0].weights)) << "the step must have been left out";
}

TEST(Agreement, TooManyNonFiniteStepsEndTheRunOnAllRanks) {
  Job job;
  job.config.train.bad_steps = 3;
  job.prepare = [](Toy& toy, int rank) {
    if (rank == 0) toy.factor = NAN;
  };
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.status.code(), Code::kRankFailed);
    EXPECT_NE(outcome.status.message().find("3 steps in a row"), std::string::npos) << outcome.status.message();
    EXPECT_NE(outcome.status.message().find("first.weight"), std::string::npos) << outcome.status.message();
  }
}

TEST(Agreement, OutOfMemoryOnOneRankIsSkippedOrEndsTheRunOnAll) {
  Job job;
  job.prepare = [](Toy& toy, int rank) {
    auto calls = std::make_shared<int>(0);
    if (rank == 1) {
      toy.before_loss = [calls](const TensorBatch&) {
        if (++*calls == 4) TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory (pretended)");
      };
    }
  };
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.status.code(), Code::kRankFailed);
    EXPECT_NE(outcome.status.message().find("1 of 2 ranks ran out of memory in step 4"), std::string::npos)
        << outcome.status.message();
    EXPECT_NE(outcome.status.message().find("exceeded the plan"), std::string::npos) << outcome.status.message();
    EXPECT_NE(outcome.status.hint().find("train."), std::string::npos) << outcome.status.ToString();
  }
  job.config.train.on_oom = "skip";
  const std::vector<Outcome> skipped = TrainOn(2, job);
  for (const Outcome& outcome : skipped) EXPECT_EQ(outcome.position.step, 12u) << outcome.status.ToString();
  EXPECT_TRUE(at::equal(skipped[0].weights, skipped[1].weights));
}

TEST(Agreement, AnExceptionOnOneRankIsToldByAll) {
  Job job;
  job.prepare = [](Toy& toy, int rank) {
    if (rank == 2) toy.before_loss = [](const TensorBatch&) { TORCH_CHECK(false, "the recipe has a defect"); };
  };
  for (const Outcome& outcome : TrainOn(3, job)) {
    EXPECT_NE(outcome.status.message().find("rank 2, step 1: the recipe has a defect"), std::string::npos)
        << outcome.status.message();
  }
}

TEST(Agreement, UnreadableSamplesAreLeftOutUpToTheBudget) {
  Job job;
  job.prepare = [](Toy& toy, int) { toy.points->unreadable = {3, 40}; };
  job.config.train.steps = 40;  // five epochs: each of them is met five times, on this rank or that
  job.config.data.bad_samples = 2;
  const Outcome one = TrainOn(1, job)[0];
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  EXPECT_EQ(one.position.bad_samples, 2u) << "each counts once";
  EXPECT_LE(one.position.samples, 40 * 8 - 2 * 5u) << "and is left out again in every epoch";
  for (const int world : {2, 3}) {
    for (const Outcome& outcome : TrainOn(world, job)) {
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      EXPECT_EQ(outcome.position.bad_samples, 2u) << "also where two ranks met it";
      EXPECT_LT(Difference(outcome.weights, one.weights), kTrainerTolerance);
    }
  }
  job.config.data.bad_samples = 1;
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.status.code(), Code::kEnvironment);
    EXPECT_NE(outcome.status.message().find("2 unreadable samples in this run, 1 allowed"), std::string::npos)
        << outcome.status.message();
  }
  job.config.data.bad_samples = 0.9;  // a share: of 64 samples, more than two
  EXPECT_TRUE(TrainOn(2, job)[1].status.ok());
  job.config.data.bad_samples = 0.02;  // one
  EXPECT_NE(TrainOn(2, job)[1].status.message().find("2 unreadable samples in this run, 1 allowed"), std::string::npos);
  job.config.data.bad_samples = 0;
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.status.code(), Code::kEnvironment);
    EXPECT_NE(outcome.status.message().find("is damaged"), std::string::npos) << outcome.status.message();
  }
}

TEST(Agreement, UnreadableSamplesAreCountedOnceAfterAResumeToo) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.prepare = [](Toy& toy, int) { toy.points->unreadable = {3, 40}; };
  job.config.train.steps = 40;
  job.config.data.bad_samples = 2;
  const at::Tensor whole = TrainOn(2, job)[0].weights;
  job.options.run_dir = dir->path();
  job.options.stop_at = 16;
  ASSERT_TRUE(TrainOn(2, job)[0].status.ok());
  job.options.stop_at.reset();
  const Outcome resumed = TrainOn(2, job)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.ToString();
  EXPECT_EQ(resumed.position.bad_samples, 2u);
  EXPECT_TRUE(at::equal(resumed.weights, whole));
}

TEST(Agreement, DifferentDataOnTwoRanksIsRefused) {
  Job job;
  job.prepare = [](Toy& toy, int rank) {
    if (rank == 1) toy.points = std::make_shared<Points>(60);
  };
  for (const Outcome& outcome : TrainOn(2, job)) EXPECT_EQ(outcome.status.code(), Code::kEnvironment);
}

TEST(Validation, IsAMeanOverAllSamplesOnAnyNumberOfRanks) {
  Result<TempDir> dir = TempDir::Create();
  std::vector<double> scores;
  for (const int world : {1, 2, 3}) {
    Job job;
    job.config.train.reproducible = true;
    job.config.data.validation.every = 4;
    job.options.run_dir = *dir / std::to_string(world);
    job.prepare = [](Toy& toy, int) { toy.held_out = std::make_shared<Points>(7); };
    const Outcome outcome = TrainOn(world, job)[0];
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    ASSERT_TRUE(outcome.position.best.has_value());
    scores.push_back(*outcome.position.best);
    EXPECT_TRUE(std::filesystem::exists(job.options.run_dir + "/checkpoints/best"));
  }
  EXPECT_EQ(scores[0], scores[1]);
  EXPECT_EQ(scores[0], scores[2]);
}

// As the PSNR of a picture that equals its target: JSON, in which ranks tell their scores, has no such number.
TEST(Validation, AScoreMayBeInfinite) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.config.train.steps = 1;
  job.options.run_dir = *dir / "run";
  job.prepare = [](Toy& toy, int rank) {
    toy.held_out = std::make_shared<Points>(7);
    toy.score_factor = rank == 0 ? std::numeric_limits<double>::infinity() : 1;
  };
  const Outcome outcome = TrainOn(2, job)[0];
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  const Result<std::string> lines = ReadFile(job.options.run_dir + "/metrics/rank-0.jsonl");
  ASSERT_TRUE(lines.ok()) << lines.status().ToString();
  EXPECT_THAT(*lines, testing::HasSubstr("\"val/error\": \"inf\""));
}

TEST(Validation, EndsTheRunOnAllRanksWhenNothingImproves) {
  Job job;
  job.config.train.steps = 40;
  job.config.train.optimizer.lr = 1e-12;  // nothing changes, so nothing can improve by a bit of float32
  job.config.train.optimizer.weight_decay = 0;
  job.config.data.validation.every = 2;
  job.config.data.validation.patience = 3;
  job.prepare = [](Toy& toy, int) { toy.held_out = std::make_shared<Points>(7); };
  for (const Outcome& outcome : TrainOn(2, job)) {
    EXPECT_EQ(outcome.end, RunEnd::kConverged) << outcome.status.ToString();
    EXPECT_LT(outcome.position.step, 40u);
  }
}

TEST(Precision, HalfTrainsOnSeveralRanksAsOnOne) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    Job job;
    job.config.train.precision = precision;
    const Outcome one = TrainOn(1, job)[0];
    ASSERT_TRUE(one.status.ok()) << one.status.ToString();
    const Outcome two = TrainOn(2, job)[1];
    // bf16 has 8 bits: sums of halves of the batch round differently, and 12 steps of 1e-2 add up.
    EXPECT_LT(Difference(one.weights, two.weights), 2e-2);
    EXPECT_GT(Difference(one.weights, TrainOn(1, {})[0].weights), 0) << "autocast must have made a difference";
  }
}

TEST(Precision, AnOverflowLowersTheScaleAndSkipsTheStepOnAllRanks) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  job.config.train.precision = Precision::kFp16;
  job.config.train.scaler.initial = 0x1p40;  // beyond fp16 for many steps
  job.config.train.steps = 30;
  const std::vector<Outcome> outcomes = TrainOn(2, job);
  for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(at::equal(outcomes[0].weights, outcomes[1].weights));
  double first = 0;
  double last = 0;
  const JsonLines lines = *ReadJsonLines(*dir / "metrics/rank-0.jsonl");
  for (const nlohmann::json& line : lines.lines) {
    const double scale = line["scalars"].value("loss_scale", 0.0);
    if (first == 0) first = scale;
    last = scale > 0 ? scale : last;
  }
  EXPECT_EQ(first, 0x1p40);
  EXPECT_LT(last, 0x1p33);
}

TEST(Precision, TheScaleSurvivesAResume) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.config.train.precision = Precision::kFp16;
  job.config.train.scaler.initial = 0x1p30;
  job.config.train.scaler.interval = 5;
  const at::Tensor whole = TrainOn(1, job)[0].weights;
  job.options.run_dir = dir->path();
  job.options.stop_at = 7;
  TrainOn(1, job);
  job.options.stop_at.reset();
  EXPECT_TRUE(at::equal(TrainOn(1, job)[0].weights, whole));
}

TEST(Freezing, EndsAtItsStepAlsoAfterAResume) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.config.train.groups = {{.match = "first.*", .freeze_until = 6}};
  const at::Tensor whole = TrainOn(2, job)[0].weights;
  EXPECT_FALSE(at::equal(whole, TrainOn(2, {})[0].weights));
  job.options.run_dir = dir->path();
  for (const uint64_t until : {4, 8, 12}) {  // one of them before the thaw, one after
    job.options.stop_at = until;
    TrainOn(2, job);
  }
  EXPECT_TRUE(at::equal(TrainOn(1, job)[0].weights, whole));
}

TEST(Checkpoints, AreWrittenByTimeToo) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  job.config.checkpoint.every_time = std::chrono::milliseconds(0);  // due at once
  job.config.checkpoint.keep.last = 100;
  TrainOn(1, job);
  EXPECT_GT(record::ScanCheckpoints(*dir / "checkpoints")->size(), 1u);  // not the last one alone
}

TEST(Checkpoints, AreBegunByAllRanksTogetherHoweverLongTheOneBeforeTakes) {
  Result<TempDir> dir = TempDir::Create();
  Job job;
  job.options.run_dir = dir->path();
  job.config.checkpoint.every = 1;
  job.config.checkpoint.keep.last = 100;
  for (const Outcome& outcome : TrainOn(3, job)) EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  const auto found = *record::ScanCheckpoints(*dir / "checkpoints");
  EXPECT_GT(found.size(), 1u);
  EXPECT_EQ(found.front().step, 12u);
  for (const record::Candidate& candidate : found) EXPECT_TRUE(candidate.status.ok()) << candidate.status.message();
}

TEST(Checkpoints, PartsOfRanksThatDoNotSeeTheFolderTravelToRank0) {
  Job job;
  job.nodes = {"a", "b", "b"};
  const at::Tensor whole = TrainOn(3, job)[0].weights;
  Result<TempDir> dir = TempDir::Create(), other = TempDir::Create();
  job.run_dir_of = [&](int rank) { return (rank == 0 ? *dir : *other).path(); };
  job.options.stop_at = 5;
  for (const Outcome& outcome : TrainOn(3, job)) ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_TRUE(record::CheckpointReader::Open(*dir / "checkpoints/step-5")->Verify().ok());
  EXPECT_FALSE(std::filesystem::exists(*other / "checkpoints"));
  job.options.stop_at.reset();
  EXPECT_TRUE(at::equal(TrainOn(3, job)[2].weights, whole));
}

TEST(BatchPlan, KeepsTheGlobalBatchOnAnyNumberOfRanks) {
  TrainConfig train;
  train.batch = 128;
  train.micro_batch = 8;
  EXPECT_EQ(PlanBatch(train, 8)->text, "8 samples x 8 ranks x 2 passes = 128");
  EXPECT_EQ(PlanBatch(train, 16)->text, "8 samples x 16 ranks x 1 pass = 128");
  EXPECT_EQ(PlanBatch(train, 3)->accumulation, 6u);
  const auto none = PlanBatch(train, 129);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().hint().find("at most 128 ranks"), std::string::npos);
  train.batch = 1;
  EXPECT_NE(PlanBatch(train, 2).status().hint().find("at most 1 rank,"), std::string::npos);
  train.reproducible = true;
  train.shards = 1;
  EXPECT_EQ(PlanBatch(train, 1)->text, "1 sample in 1 canonical shard over 1 rank");
}

}  // namespace
}  // namespace lockstep::engine
