// Training with a teacher and a discriminator on several ranks, in several passes, stopped and continued.
#include <fmt/format.h>

#include "recipes/taehv_bed.h"

namespace lockstep::recipes {
namespace {

// Everything on: a sampled TorchScript teacher, all three losses, weight averaging.
struct Everything {
  Result<TempDir> folder = TempDir::Create();
  TaehvJob job;

  Everything() {
    WriteTeacher(folder->path() + "/teacher.pt", "(y, 0.1 * y.abs() + 0.05)");
    job.config.train.ema.decay = 0.9;
    job.config.train.steps = 4;
    job.set = [path = folder->path() + "/teacher.pt"](TaehvSettings& settings) {
      settings.mode = "distill";
      settings.encoder = settings.adversarial = 1;
      settings.teacher.kind = "torchscript";
      settings.teacher.path = path;
      settings.teacher.range = {-1, 1};
      settings.seraena.frames = 6;
      settings.seraena.replay = 4 * 5;  // full in the third step
    };
  }
};

// What one rank makes of everything, which many tests compare with: trained once.
const TaehvOutcome& OnOneRank() {
  static const TaehvOutcome one = TrainTaehv(1, Everything().job)[0];
  return one;
}

void ExpectFine(const std::vector<TaehvOutcome>& outcomes) {
  for (const TaehvOutcome& outcome : outcomes) ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
}

// Sums in another order, through six steps of Adam and a discriminator.
constexpr double kTolerance = 5e-3;

class TaehvOnRanks : public testing::TestWithParam<int> {
 protected:
  Everything all;
};

TEST_P(TaehvOnRanks, TrainsAsOnOne) {
  const TaehvOutcome& one = OnOneRank();
  const auto several = TrainTaehv(GetParam(), all.job);
  ExpectFine(several);
  EXPECT_LT(Apart(one.model, several.back().model), kTolerance);
  EXPECT_LT(Apart(one.disc, several.back().disc), kTolerance);
  EXPECT_EQ(Apart(several.front().disc, several.back().disc), 0) << "all ranks have one discriminator, to the bit";
}

TEST(TaehvBuckets, ClipsOfSeveralSizesTrainAlikeOnRanks) {
  TaehvJob job;
  job.config.train.steps = 4;
  job.config.data.last_batch = data::LastBatch::kPad;
  job.clips.buckets = {"16x32", "32x16"};
  const auto one = TrainTaehv(1, job), two = TrainTaehv(2, job);
  ExpectFine(one);
  ExpectFine(two);
  EXPECT_LT(Apart(one.front().model, two.back().model), kTolerance);
}

// Each suite is one test of ctest, which runs several at once: those that share a training stay together.
class TaehvReproducible : public TaehvOnRanks {};

TEST_P(TaehvReproducible, HasTheBitsOfOne) {
  all.job.config.train.reproducible = true;
  all.job.config.train.shards = 4;
  all.job.config.train.steps = 3;
  static const TaehvOutcome one = TrainTaehv(1, all.job)[0];  // for every number of ranks
  const auto several = TrainTaehv(GetParam(), all.job);
  ExpectFine(several);
  EXPECT_EQ(Apart(one.model, several[0].model), 0);
  EXPECT_EQ(Apart(one.disc, several[0].disc), 0);
}

INSTANTIATE_TEST_SUITE_P(Worlds, TaehvOnRanks, testing::Values(2, 3),
                         [](const auto& info) { return std::to_string(info.param); });
INSTANTIATE_TEST_SUITE_P(Worlds, TaehvReproducible, testing::Values(2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(TaehvRanks, OtherDrawsEndElsewhere) {
  Everything all;
  const TaehvOutcome& one = OnOneRank();
  all.job.set = [set = all.job.set](TaehvSettings& settings) {
    set(settings);
    settings.seraena.replay = 4 * 4;
  };
  EXPECT_GT(Apart(one.model, TrainTaehv(1, all.job)[0].model), 2 * kTolerance)
      << "or the tolerance above would hide mistakes";
}

TEST(TaehvPasses, UnequalSharesPassesWithoutSamplesAndUnreadableSamplesTakePart) {
  Everything all;
  all.job.config.train.batch = 5;
  all.job.config.train.micro_batch = 1;  // rank 0 has 3 samples and rank 1 has 2: its third pass is empty
  all.job.config.data.bad_samples = 100;
  auto clips = std::make_shared<ClipsInMemory>(SomeClips(10), at::Tensor());
  clips->unreadable = 6;
  all.job.source = clips;
  all.job.set = [set = all.job.set](TaehvSettings& settings) {
    set(settings);
    settings.seraena.replay = 5 * 5;
  };
  const auto two = TrainTaehv(2, all.job);
  ExpectFine(two);
  EXPECT_EQ(Apart(two[0].model, two[1].model), 0);
  EXPECT_EQ(Apart(two[0].disc, two[1].disc), 0);
}

class TaehvResumed : public testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(TaehvResumed, ContinuesAsIfNothingHadHappened) {
  const auto [world, precision] = GetParam();
  Everything all;
  if (std::string(precision) == "fp16") {  // slow on CPUs: less of everything
    all.job.config.train.precision = engine::Precision::kFp16;
    all.job.config.train.batch = 2;
    all.job.config.train.steps = 2;
    all.job.source = std::make_shared<ClipsInMemory>(SomeClips(2), at::Tensor());
  }
  const TaehvOutcome whole = TrainTaehv(world, all.job)[0];
  ExpectFine({whole});
  all.job.options.run_dir = all.folder->path() + "/run";
  all.job.options.stop_at = all.job.config.train.steps - 1;
  ExpectFine(TrainTaehv(world, all.job));
  all.job.options.stop_at.reset();
  const auto resumed = TrainTaehv(world, all.job);
  ExpectFine(resumed);
  EXPECT_EQ(Apart(whole.model, resumed[0].model), 0);
  EXPECT_EQ(Apart(whole.disc, resumed[0].disc), 0);
}

INSTANTIATE_TEST_SUITE_P(Worlds, TaehvResumed, testing::Values(std::pair(1, "fp32"), std::pair(2, "fp32")),
                         [](const auto& info) { return fmt::format("{}_{}", info.param.first, info.param.second); });
INSTANTIATE_TEST_SUITE_P(Half, TaehvResumed, testing::Values(std::pair(1, "fp16")),
                         [](const auto& info) { return fmt::format("{}_{}", info.param.first, info.param.second); });

TEST(TaehvRanks, ATrainingMovesToAnotherNumberOfRanks) {
  Everything all;
  const TaehvOutcome& whole = OnOneRank();
  all.job.options.run_dir = all.folder->path() + "/run";
  for (const auto& [world, until] : {std::pair(4, 1), std::pair(2, 3), std::pair(1, 4)}) {
    all.job.options.stop_at = until;
    const auto part = TrainTaehv(world, all.job);
    ExpectFine(part);
    if (until == 4) EXPECT_LT(Apart(whole.model, part[0].model), kTolerance);
  }
}

TEST(TaehvRanks, AnEmptyReplayBufferInTheCheckpointWouldBeNoticed) {
  Everything all;
  const TaehvOutcome& whole = OnOneRank();
  all.job.options.run_dir = all.folder->path() + "/run";
  all.job.options.stop_at = 3;
  ExpectFine(TrainTaehv(1, all.job));
  all.job.options.stop_at.reset();
  all.job.forgets = true;
  EXPECT_NE(Apart(whole.model, TrainTaehv(1, all.job)[0].model), 0);
}

TEST(TaehvPasses, StatisticsAreThoseOfAPass) {
  Everything all;
  // Places 0, 1 | 2, 3: two passes of one rank, but one pass of two ranks.
  all.job.config.train.micro_batch = 2;
  all.job.config.train.steps = 2;
  const auto one = TrainTaehv(1, all.job);
  ExpectFine(one);
  EXPECT_GT(Apart(TrainTaehv(2, all.job)[0].disc, one[0].disc), kTolerance);
}

TEST(TaehvFrozen, TheOtherHalfKeepsItsWeights) {
  for (const std::string half : {"encoder", "decoder"}) {
    TaehvJob job;
    job.set = [&](TaehvSettings& settings) { settings.train = half; };
    const auto before = [&] {
      TaehvJob none = job;
      none.config.train.optimizer.lr = 1e-30;
      none.config.train.optimizer.weight_decay = 0;
      return TrainTaehv(1, none)[0].model;
    }();
    const TaehvOutcome after = TrainTaehv(1, job)[0];
    ExpectFine({after});
    for (const auto& [name, weight] : after.model) {
      if (name.starts_with(half + ".")) continue;
      EXPECT_TRUE(at::equal(weight, before.at(name))) << name;
    }
    const std::string moved = half == "encoder" ? "encoder.0.weight" : "decoder.1.weight";
    EXPECT_FALSE(at::equal(after.model.at(moved), before.at(moved)));
  }
}

}  // namespace
}  // namespace lockstep::recipes
