#include "engine/precision.h"

#include "base/files.h"
#include "engine/train_on.h"
#include "record/checkpoint.h"

namespace lockstep::engine {
namespace {

TEST(AutoPrecision, IsBf16WhereTheGpuComputesInIt) {
  EXPECT_EQ(AutoPrecision(std::nullopt), Precision::kFp32);            // a CPU
  const std::pair<int, Precision> table[] = {{6, Precision::kFp32},    // P100
                                             {7, Precision::kFp32},    // V100, T4
                                             {8, Precision::kBf16},    // A100, L40
                                             {9, Precision::kBf16},    // H100
                                             {12, Precision::kBf16}};  // RTX 5090
  for (const auto& [major, expected] : table) EXPECT_EQ(AutoPrecision(GpuFacts{"", major, 5, 0}), expected) << major;
}

TEST(AutoPrecision, HasNamesThatReadBack) {
  for (const auto precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16, Precision::kAuto}) {
    EXPECT_EQ(PrecisionNamed(PrecisionName(precision)), precision);
  }
  EXPECT_EQ(PrecisionNamed("fp8"), std::nullopt);
}

TEST(AutoPrecision, OnACpuHasTheBitsOfFp32) {
  Job job;
  const at::Tensor fp32 = TrainOn(1, job)[0].weights;
  job.config.train.precision = Precision::kAuto;
  EXPECT_TRUE(at::equal(TrainOn(1, job)[0].weights, fp32));
}

// A run begun in bf16 elsewhere goes on in bf16, although this device would have chosen fp32.
TEST(AutoPrecision, OfAResumedRunIsThatOfItsCheckpoint) {
  Job job;
  job.config.train.precision = Precision::kBf16;
  const at::Tensor whole = TrainOn(2, job)[0].weights;
  Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  job.options.stop_at = 5;
  ASSERT_TRUE(TrainOn(2, job)[0].status.ok());
  job.options.stop_at.reset();
  job.config.train.precision = Precision::kAuto;
  const Outcome rest = TrainOn(2, job)[1];
  ASSERT_TRUE(rest.status.ok()) << rest.status.ToString();
  EXPECT_TRUE(at::equal(rest.weights, whole));
  EXPECT_EQ(*RecordedPrecision(*dir / "checkpoints/step-12"), Precision::kBf16);
}

// They did not say it before version 0.2.
TEST(AutoPrecision, OfAnOldCheckpointIsThatOfItsRun) {
  Result<TempDir> dir = TempDir::Create();
  const std::string path = *dir / "checkpoints/step-3";
  record::CheckpointContent content{.step = 3, .recipe = "toy", .state = nlohmann::json::object(), .tensors = {}};
  const float value = 1;
  content.tensors.push_back({"model/a", Dtype::kF32, {1}, &value, sizeof value});
  ASSERT_TRUE(record::WriteCheckpoint(*dir / "checkpoints", content, *record::PosixStorage()).ok());
  EXPECT_EQ(*RecordedPrecision(path), Precision::kFp32) << "the default then";
  ASSERT_TRUE(WriteFileAtomic(*dir / "train.yaml", "train:\n  steps: 3\n  precision: bf16\n").ok());
  EXPECT_EQ(*RecordedPrecision(path), Precision::kBf16);
  EXPECT_FALSE(RecordedPrecision(*dir / "checkpoints/step-4").ok());
}

// What was chosen is what train.yaml says.
TEST(AutoPrecision, IsReplacedInTheRecordedConfiguration) {
  Job job;
  job.config.train.precision = Precision::kAuto;
  OnRanks(2, [&](Ranks& ranks) {
    Toy toy;
    TrainerOptions options;
    options.quiet = true;
    options.effective_config = "train:\n  steps: 12\n  precision: auto\n  clip: 1\n";
    Trainer trainer(job.config, &toy, &ranks, at::kCPU, options);
    ASSERT_TRUE(trainer.Setup().ok());
    EXPECT_EQ(trainer.effective_config(), "train:\n  steps: 12\n  precision: fp32\n  clip: 1\n");
  });
}

}  // namespace
}  // namespace lockstep::engine
