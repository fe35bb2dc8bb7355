// Trainings on samples of several shapes: every step has one shape, the same samples on any number of ranks and
// threads, from wherever they are resumed.
#include <gmock/gmock.h>

#include <mutex>

#include "base/files.h"
#include "data/bucketed_source.h"
#include "engine/captured_steps.h"
#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

using testing::HasSubstr;

// Samples of `rows` points each.
class Rows : public data::Source {
 public:
  Rows(int64_t rows, uint64_t size)
      : rows_(rows),
        points_(size * static_cast<uint64_t>(rows)),
        fields_{{"x", data::ElementType::kF32, {rows, 4}}, {"y", data::ElementType::kF32, {rows, 2}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }
  uint64_t size() const override { return points_.size() / static_cast<uint64_t>(rows_); }
  std::string Name(uint64_t index) const override { return fmt::format("{} rows {}", rows_, index); }
  Status Read(const data::Draw& draw, std::span<std::byte* const> out) const override {
    for (int64_t row = 0; row < rows_; ++row) {
      data::Draw inner = draw;
      inner.index = draw.index * static_cast<uint64_t>(rows_) + static_cast<uint64_t>(row);
      std::byte* to[] = {out[0] + row * 16, out[1] + row * 8};
      LOCKSTEP_RETURN_IF_ERROR(points_.Read(inner, to));
    }
    return Status::Ok();
  }
  std::string Describe() const override { return fmt::format("{} samples of {} rows", size(), rows_); }
  std::string Digest() const override { return fmt::format("rows-{}-{}", rows_, size()); }

 private:
  int64_t rows_;
  Points points_;
  std::vector<data::Field> fields_;
};

struct BucketedToy : Toy {
  Result<Sources> Open(const Config&) override {
    const auto buckets = [](uint64_t first, uint64_t second) -> std::shared_ptr<const data::Source> {
      return data::JoinBuckets({std::make_shared<Rows>(1, first), std::make_shared<Rows>(3, second)}, {{1, 4}, {3, 4}},
                               "rows");
    };
    return Sources{buckets(21, 30), buckets(3, 5)};
  }
};

Job BucketedJob() {
  Job job;
  job.make = [] { return std::make_unique<BucketedToy>(); };
  job.config.train.reproducible = true;
  job.config.data.threads = 2;
  job.config.data.last_batch = data::LastBatch::kKeep;
  job.config.data.validation.every = 5;
  job.config.data.validation.batch = 2;
  return job;
}

TEST(BucketedData, ResumesOnOtherNumbersOfRanksAndThreadsWithTheSameBits) {
  Job job = BucketedJob();
  std::mutex mutex;
  std::set<int64_t> rows;
  job.prepare = [&](Toy& toy, int) {
    toy.before_loss = [&](const TensorBatch& batch) {
      const std::lock_guard lock(mutex);
      rows.insert(batch["x"].size(1));
    };
  };
  const Outcome whole = TrainOn(1, job)[0];
  ASSERT_TRUE(whole.status.ok()) << whole.status.ToString();
  EXPECT_EQ(rows, (std::set<int64_t>{1, 3}));
  const Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  Outcome last;
  for (const auto& [world, until] : std::vector<std::pair<int, uint64_t>>{{4, 5}, {2, 9}, {1, 12}}) {
    job.options.stop_at = until;
    job.config.data.threads = world - 1;
    last = TrainOn(world, job)[0];
    ASSERT_TRUE(last.status.ok()) << last.status.ToString();
  }
  EXPECT_TRUE(at::equal(last.weights, whole.weights));
  EXPECT_EQ(last.position.sampler, whole.position.sampler);
  EXPECT_EQ(last.position.samples, whole.position.samples);
}

TEST(BucketedData, AnotherBatchIsAnotherOrder) {
  Job job = BucketedJob();
  const Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  job.options.stop_at = 2;
  ASSERT_TRUE(TrainOn(1, job)[0].status.ok());
  job.config.train.batch = 16;
  EXPECT_THAT(TrainOn(1, job)[0].status.message(), HasSubstr("in batches of 8) than this run's"));
  job.config.data.on_change = "new_epoch";
  EXPECT_TRUE(TrainOn(1, job)[0].status.ok());
}

// Libraries choose their algorithms in the first steps of a shape.
TEST(BucketedData, AShapeIsCapturedInItsFourthStep) {
  CapturedSteps captured(at::kCPU, [](const std::string&) {});
  const auto batch = [](int64_t rows) {
    TensorBatch made;
    made.fields["x"] = at::zeros({2, rows});
    return made;
  };
  for (uint64_t step = 0; step < 10; ++step) {
    const int64_t rows = step % 2 == 0 ? 1 : 2;
    for (int pass = 0; pass < 4; ++pass) EXPECT_EQ(captured.Takes(batch(rows), step), step >= 6) << step << " " << pass;
  }
  for (uint64_t step = 10; step < 20; ++step) {
    for (int64_t rows = 3; rows < 40; ++rows) EXPECT_EQ(captured.Takes(batch(rows), step), rows <= 32 && step >= 13);
  }
}

}  // namespace
}  // namespace lockstep::engine
