// Trainings on several sets that are mixed by weight: the same samples on any number of ranks and threads, from
// wherever they are resumed.
#include <gmock/gmock.h>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "engine/train_on.h"

namespace lockstep::engine {
namespace {

using testing::HasSubstr;

// Of the 61 points the first 40 are one set and the others another; three in four draws are of the first.
Job MixedJob() {
  Job job;
  job.config.train.reproducible = true;
  job.config.data.threads = 2;
  job.prepare = [](Toy& toy, int) {
    toy.mixture = std::make_shared<const data::Mixture>(*data::Mixture::Create({{40, 3}, {21, 1}}));
  };
  return job;
}

TEST(MixedData, ResumesOnOtherNumbersOfRanksAndThreadsWithTheSameBits) {
  Job job = MixedJob();
  const at::Tensor whole = TrainOn(1, job)[0].weights;
  const Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  at::Tensor last;
  for (const auto& [world, until] : std::vector<std::pair<int, uint64_t>>{{4, 5}, {2, 9}, {1, 12}}) {
    job.options.stop_at = until;
    job.config.data.threads = world - 1;
    const Outcome outcome = TrainOn(world, job)[0];
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.position.sampler.position, 8 * until);
    EXPECT_EQ(outcome.position.samples, 8 * until);
    last = outcome.weights;
  }
  EXPECT_TRUE(at::equal(last, whole));
  EXPECT_FALSE(at::equal(whole, TrainOn(1, {})[0].weights)) << "the points in one set train alike: this is no test";
}

TEST(MixedData, EverySetsShareAndEpochsAreMetrics) {
  Job job = MixedJob();
  const Result<TempDir> dir = TempDir::Create();
  job.options.run_dir = dir->path();
  ASSERT_TRUE(TrainOn(2, job)[0].status.ok());
  const std::string text = *ReadFile(*dir / "metrics/rank-0.jsonl");
  // 96 draws, 72 of the 40 points and 24 of the 21.
  EXPECT_THAT(text, HasSubstr("data/share/0"));
  nlohmann::json last;
  for (const std::string& line : Split(text, '\n')) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.value("step", 0) == 12) last = json;
  }
  const auto value = [&](const char* name) {
    return last.contains("scalars") ? last["scalars"].value(name, -1.0) : -1;
  };
  EXPECT_NEAR(value("data/share/0"), 0.75, 1e-9) << last.dump();
  EXPECT_NEAR(value("data/epochs/0"), 72.0 / 40, 1e-9);
  EXPECT_NEAR(value("data/epochs/1"), 24.0 / 21, 1e-9);
}

TEST(MixedData, UnreadableSamplesOfAllSetsCountAgainstOneBudget) {
  Job job = MixedJob();
  const auto mix = job.prepare;
  job.prepare = [mix](Toy& toy, int rank) {
    mix(toy, rank);
    toy.points->unreadable = {3, 50};  // one of each set
  };
  job.config.train.steps = 40;
  job.config.data.bad_samples = 2;
  const Outcome one = TrainOn(1, job)[0];
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  EXPECT_EQ(one.position.bad_samples, 2u);
  EXPECT_TRUE(at::equal(TrainOn(2, job)[0].weights, one.weights));
  job.config.data.bad_samples = 1;
  EXPECT_THAT(TrainOn(2, job)[0].status.message(), HasSubstr("2 unreadable samples in this run, 1 allowed"));
}

TEST(MixedData, ValidationTakesAsManyOfEachSetAsItHas) {
  const auto points = [](uint64_t size) { return std::make_shared<Points>(size); };
  struct Row {
    uint64_t samples;
    std::vector<uint64_t> sizes;
  };
  for (const Row& row :
       std::vector<Row>{{0, {3, 10, 4}}, {9, {3, 3, 3}}, {11, {3, 4, 4}}, {13, {3, 6, 4}}, {2, {1, 1, 0}}}) {
    Config config;
    config.data.validation.samples = row.samples;
    const Result<Sources> mixed =
        Mix({{points(1), points(3)}, {points(1), points(10)}, {points(1), points(4)}}, {1, 1, 1}, config);
    ASSERT_TRUE(mixed.ok()) << mixed.status().ToString();
    const auto& validation = dynamic_cast<const data::MixedSource&>(*mixed->validation);
    std::vector<uint64_t> sizes(3, 0);
    for (uint64_t i = 0; i < validation.size(); ++i) {
      const data::MixedSource::Place place = validation.Find(i);
      EXPECT_EQ(validation.Name(i), "point " + std::to_string(place.index));
      ++sizes[place.part];
    }
    EXPECT_EQ(sizes, row.sizes) << row.samples;
  }
}

}  // namespace
}  // namespace lockstep::engine
