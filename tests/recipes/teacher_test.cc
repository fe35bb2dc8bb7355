#include "recipes/teacher.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <fstream>

#include "base/config.h"
#include "cache/folder.h"
#include "models/taehv_file.h"
#include "recipes/taehv_bed.h"

namespace lockstep::recipes {
namespace {

class TeacherFile : public testing::Test {
 protected:
  Result<TempDir> folder = TempDir::Create();
  std::string path = folder->path() + "/teacher.pt";
  models::TaehvConfig student = *models::FindTaehv("taehv-small");

  TeacherConfig Config() {
    TeacherConfig config;
    config.kind = "torchscript";
    config.path = path;
    return config;
  }
  // Of loading and asking it once.
  Status Probe(const TeacherConfig& config, bool must_repeat = false) {
    at::set_num_threads(1);
    auto teacher = Teacher::Load(config, at::kCPU);
    return teacher.ok() ? (*teacher)->Probe(student, 12, 16, 24, must_repeat) : teacher.status();
  }
  void ExpectRefused(const Status& status, const std::string& word) {
    EXPECT_FALSE(status.ok());
    EXPECT_NE((status.message() + status.hint()).find(word), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find(path), std::string::npos) << status.ToString();
  }
};

TEST_F(TeacherFile, GivesLatentsOfTheRangeAndLayoutItWants) {
  WriteTeacher(path, "y");
  ASSERT_TRUE(Probe(Config()).ok()) << Probe(Config()).ToString();
  const at::Tensor frames = at::rand({2, 12, 3, 16, 24});
  const at::Tensor plain = *(*Teacher::Load(Config(), at::kCPU))->Encode(frames, {1, 2});
  EXPECT_EQ(plain.sizes(), at::IntArrayRef({2, 3, 16, 2, 3}));
  TeacherConfig signed_range = Config();
  signed_range.range = {-1, 1};
  const at::Tensor wide = *(*Teacher::Load(signed_range, at::kCPU))->Encode(frames, {1, 2});
  EXPECT_TRUE(at::allclose(wide, plain * 2 - 1, 1e-5, 1e-5));
  TeacherConfig other = Config();
  other.layout = "NCTHW";
  ExpectRefused(Probe(other), "(NCTHW)");
  WriteTeacher(path, "x");  // whatever comes in
  ExpectRefused(Probe(Config()), "gave latents [1, 12, 3, 16, 24] (NTCHW), expected [1, 3, 16, 2, 3]");
}

TEST_F(TeacherFile, TimeAndChannelsTheOtherWayRoundAreRecognised) {
  WriteTeacher(path, "y.transpose(1, 2)");
  ExpectRefused(Probe(Config()), "the other way round");
}

TEST_F(TeacherFile, IsSampledFromItsMeanAndDeviationByKey) {
  WriteTeacher(path, "(y, y * 0 + 0.5)");
  ASSERT_TRUE(Probe(Config(), /*must_repeat=*/true).ok());
  auto teacher = Teacher::Load(Config(), at::kCPU);
  const at::Tensor frames = at::rand({1, 12, 3, 16, 24}).expand({3, -1, -1, -1, -1});
  torch::manual_seed(1);
  const at::Tensor first = *(*teacher)->Encode(frames, {7, 9, 7});
  EXPECT_TRUE(at::equal(first[0], first[2]));
  EXPECT_FALSE(at::equal(first[0], first[1]));
  torch::manual_seed(2);
  EXPECT_TRUE(at::equal(*(*teacher)->Encode(frames.narrow(0, 1, 1), {9}), first.narrow(0, 1, 1)))
      << "the same in any batch, whatever the generators hold";
  EXPECT_NEAR((first[0] - first[1]).std().item<double>(), 0.5 * std::sqrt(2.0), 0.15);
}

TEST_F(TeacherFile, OneThatDrawsItselfIsRefusedWhereEveryBitCounts) {
  WriteTeacher(path, "y + torch.rand_like(y)");
  EXPECT_TRUE(Probe(Config()).ok());
  ExpectRefused(Probe(Config(), /*must_repeat=*/true), "random numbers of its own");
}

TEST_F(TeacherFile, WhatIsWrongIsSaid) {
  ExpectRefused(Probe(Config()), "no such file");
  std::ofstream(path) << "these are no weights";
  ExpectRefused(Probe(Config()), "not a TorchScript module");
  WriteTeacher(path, "torch.cat([y, y], 2)");
  ExpectRefused(Probe(Config()), "[1, 3, 32, 2, 3]");
  WriteTeacher(path, "y / 0");
  ExpectRefused(Probe(Config()), "not finite");
  WriteTeacher(path, "y.long()");
  ExpectRefused(Probe(Config()), "floating-point");
  WriteTeacher(path, "[y, y, y]");
  ExpectRefused(Probe(Config()), "(mean, standard deviation)");
  WriteTeacher(path, "y[:, :, :, :, 0]");
  ExpectRefused(Probe(Config()), "5 axes");
  WriteTeacher(path, "(y, y * 0 - 1)");
  ExpectRefused(Probe(Config()), "logarithm of the variance");
}

TEST_F(TeacherFile, LatentsOfFewerClipsThanItWasGivenAreNotStretchedOverAll) {
  WriteTeacher(path, "y.mean(0, True)");
  ASSERT_TRUE(Probe(Config()).ok());
  auto teacher = Teacher::Load(Config(), at::kCPU);
  ExpectRefused((*teacher)->Encode(at::rand({3, 12, 3, 16, 24}), {1, 2, 3}).status(), "latents of 1 clips for 3");
}

TEST_F(TeacherFile, OtherLatentsThanAtFirstEndTheTraining) {
  WriteTeacher(path, "y if x.shape[0] == 1 else y[:, :2]");
  auto teacher = Teacher::Load(Config(), at::kCPU);
  ASSERT_TRUE((*teacher)->Probe(student, 12, 16, 24, false).ok());
  ExpectRefused((*teacher)->Encode(at::rand({2, 12, 3, 16, 24}), {1, 2}).status(), "[2, 16, 2, 3] (NTCHW) for a clip");
}

TEST_F(TeacherFile, RunsInItsOwnPrecisionWhateverAutocastSays) {
  WriteTeacher(path, "y");
  const at::Tensor frames = at::rand({1, 12, 3, 16, 24});
  const at::Tensor plain = *(*Teacher::Load(Config(), at::kCPU))->Encode(frames, {1});
  const engine::AutocastGuard autocast(at::kCPU, engine::Precision::kBf16);
  EXPECT_TRUE(at::equal(*(*Teacher::Load(Config(), at::kCPU))->Encode(frames, {1}), plain));
  TeacherConfig half = Config();
  half.precision = engine::Precision::kBf16;
  const at::Tensor rough = *(*Teacher::Load(half, at::kCPU))->Encode(frames, {1});
  EXPECT_EQ(rough.scalar_type(), at::kFloat);
  EXPECT_FALSE(at::equal(rough, plain));
  EXPECT_TRUE(at::allclose(rough, plain, 0.02, 0.02));
}

// A training that is broken by its teacher ends before its first step, on every rank.
TEST_F(TeacherFile, ABrokenOneEndsATrainingBeforeItsFirstStep) {
  WriteTeacher(path, "x");
  TaehvJob job;
  job.set = [&](TaehvSettings& settings) {
    settings.encoder = 1;
    settings.teacher = Config();
  };
  for (const TaehvOutcome& outcome : TrainTaehv(2, job)) {
    EXPECT_NE(outcome.status.message().find("expected [1, 3, 16, 2, 2]"), std::string::npos)
        << outcome.status.ToString();
  }
}

// ---- latents in a feature cache

class CachedTeacher : public TeacherFile {
 protected:
  std::string root = folder->path() + "/cache";
  TaehvJob job;

  CachedTeacher() {
    job.config.train.steps = 3;
    job.source = nullptr;
    job.clips.kind = "clips";
    job.clips.clips = 12;
    WriteTeacher(path, "y");
  }
  void Use(const std::string& policy, cache::Storage stored = cache::Storage::kSame) {
    job.set = [this, policy, stored](TaehvSettings& settings) {
      settings.encoder = 1;
      settings.teacher = Config();
      if (policy.empty()) return;
      settings.teacher.cache.root = root;
      settings.teacher.cache.policy = policy;
      settings.teacher.cache.stored = stored;
    };
  }
  Status Build() {
    TaehvRecipe recipe;
    recipe.clips() = job.clips;
    recipe.settings().model = "taehv-small";
    job.set(recipe.settings());
    engine::Config config = job.config;
    LOCKSTEP_RETURN_IF_ERROR(recipe.Check(&config));
    return recipe.BuildCache(config, at::kCPU, {});
  }
  TaehvOutcome Train() { return TrainTaehv(2, job)[0]; }
  std::string Namespace() { return root + "/" + cache::Namespaces(root)->front(); }
  void ExpectSaid(const Status& status, const std::string& word) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.ToString();
  }
};

// Latents as they are, and mean and deviation, which are sampled anew in every step.
TEST_F(CachedTeacher, TrainsWithTheBitsOfTheLiveOne) {
  for (const char* result : {"y", "(y, y * 0 + 0.5)"}) {
    WriteTeacher(path, result);
    Use("");
    const TaehvOutcome live = Train();
    ASSERT_TRUE(live.status.ok()) << live.status.ToString();
    Use("require");
    ExpectSaid(Train().status, std::string(result) == "y" ? "cannot list folder" : "has no latents of");
    ASSERT_TRUE(Build().ok()) << Build().ToString();
    const TaehvOutcome cached = Train();
    ASSERT_TRUE(cached.status.ok()) << cached.status.ToString();
    EXPECT_EQ(Apart(live.model, cached.model), 0) << result;
    EXPECT_EQ(cached.series.at("rank/cache/hits").back(), 6);  // 3 steps of 2 clips
    EXPECT_EQ(cached.series.at("rank/cache/live").back(), 0);
  }
}

TEST_F(CachedTeacher, WhatIsMissingOrDamagedIsEncodedLiveOrForbidden) {
  Use("");
  const TaehvOutcome live = Train();
  Use("read");
  ASSERT_TRUE(Build().ok());
  std::vector<std::string> units = *ListDir(Namespace() + "/units");
  ASSERT_EQ(units.size(), 12u);
  const auto unit = [&](size_t i) { return Namespace() + "/units/" + units[i]; };
  const auto damage = [&](const std::string& file) {  // the last byte is of a row
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(-1, std::ios::end);
    stream.put('\x7f');
  };
  ASSERT_EQ(unlink(unit(0).c_str()), 0);
  damage(unit(1));
  const TaehvOutcome mended = Train();
  ASSERT_TRUE(mended.status.ok()) << mended.status.ToString();
  EXPECT_EQ(Apart(live.model, mended.model), 0);
  const auto count = [&](const char* name) { return mended.series.at(name).back(); };
  EXPECT_EQ(count("rank/cache/hits") + count("rank/cache/misses") + count("rank/cache/damaged"), 6);
  EXPECT_EQ(count("rank/cache/live"), count("rank/cache/misses") + count("rank/cache/damaged"));
  EXPECT_EQ(count("rank/cache/live"), 2);  // rank 0 has clips 0, 1, 4, 5, 8, 9
  Use("require");
  ExpectSaid(Train().status, "1 of 12 training samples are not built yet");
  ASSERT_TRUE(Build().ok());
  ExpectSaid(Train().status, "is damaged");
}

TEST_F(CachedTeacher, ChangesThatMatterAreNeverHits) {
  Use("read");
  ASSERT_TRUE(Build().ok());
  EXPECT_EQ(Train().series.at("rank/cache/hits").back(), 6);
  const auto hits = [&] {
    const TaehvOutcome outcome = Train();
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    const auto found = outcome.series.find("rank/cache/hits");
    return found == outcome.series.end() ? 0 : found->second.back();
  };
  job.clips.seed = 5;  // other frames
  EXPECT_EQ(hits(), 0);
  job.clips.seed = TaehvJob().clips.seed;
  WriteTeacher(path, "y * 1.0000001");  // other weights
  EXPECT_EQ(hits(), 0);
  WriteTeacher(path, "y");
  const auto set = job.set;
  job.set = [set](TaehvSettings& settings) {
    set(settings);
    settings.teacher.range = {0, 1.5};  // other preprocessing
  };
  EXPECT_EQ(hits(), 0);
}

TEST_F(CachedTeacher, FewerBitsStayWithinTheStatedError) {
  Use("");
  const TaehvOutcome live = Train();
  Use("read", cache::Storage::kInt8);
  ASSERT_TRUE(Build().ok());
  const TaehvOutcome cached = Train();
  ASSERT_TRUE(cached.status.ok()) << cached.status.ToString();
  EXPECT_EQ(cached.series.at("rank/cache/hits").back(), 6);
  EXPECT_NEAR(cached.series.at("loss").back(), live.series.at("loss").back(), 0.01 * live.series.at("loss").back());
}

TEST_F(CachedTeacher, BadTeachersAreNotCached) {
  Use("read");
  WriteTeacher(path, "y + torch.rand_like(y)");
  ExpectSaid(Build(), "random numbers of its own");
  WriteTeacher(path, "y / 0");
  ExpectSaid(Build(), "not finite");
  Use("");
  ExpectSaid(Build(), "nothing to build");
}

// ---- rules between keys

TEST(TaehvRules, AreSaidBeforeAnythingStarts) {
  const auto refused = [](const std::function<void(TaehvSettings&, engine::Config&)>& set) {
    TaehvRecipe recipe;
    TaehvJob job;
    recipe.settings().model = "taehv-small";
    set(recipe.settings(), job.config);
    const Status status = recipe.Check(&job.config);
    return status.message() + " | " + status.hint();
  };
  using Settings = TaehvSettings;
  using Config = engine::Config;
  EXPECT_EQ(refused([](Settings&, Config&) {}), " | ");
  const auto with_buckets = [](double adversarial, const char* size) {
    TaehvRecipe recipe;
    TaehvJob job;
    recipe.settings().model = "taehv-small";
    recipe.settings().adversarial = adversarial;
    recipe.clips().buckets = {"16x16", size};
    return recipe.Check(&job.config).message();
  };
  EXPECT_EQ(with_buckets(0, "16x32"), "");
  EXPECT_NE(with_buckets(1, "16x32").find("data.buckets: the replay buffer has pictures of one size"),
            std::string::npos);
  EXPECT_NE(with_buckets(0, "16x33").find("33"), std::string::npos) << "every size must suit the model";
  EXPECT_NE(refused([](Settings& s, Config&) { s.mode = "distill"; }).find("distill needs a teacher"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) { s.encoder = 1; }).find("loss.encoder needs a teacher"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) { s.reconstruction = 0; }).find("no part is left"), std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) {
              s.mode = "distill";
              s.train = "encoder";
              s.encoder = 0;
            }).find("no part is left"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) {
              s.adversarial = 1;
              s.seraena.frames = 5;
            }).find("12 frames cannot be cut into pictures of 5"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config& c) {
              s.adversarial = 1;
              c.data.last_batch = data::LastBatch::kKeep;
            }).find("data.last_batch: keep"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) {
              s.adversarial = 1;
              s.seraena.replay_memory = 10000;
            }).find("one batch makes 16"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) {
              s.adversarial = 1;
              s.seraena.replay = 15;
            }).find("less than the 16 pictures"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config& c) {
              s.encoder = 1;
              s.teacher.kind = "torchscript";
              s.teacher.cache.root = "cache";
              c.data.augment = true;
            }).find("needs data.augment: false"),
            std::string::npos);
  EXPECT_NE(refused([](Settings& s, Config&) { s.model = "taehv-smal"; }).find("taehv-small"), std::string::npos);
}

// ---- beginning with another variant's weights

TEST(TaehvConversion, TakesWhatFitsAndKeepsTheRest) {
  const Result<TempDir> folder = TempDir::Create();
  const std::string file = folder->path() + "/wide.safetensors";
  models::Taehv other(*models::FindTaehv("taehv"), 5);
  ASSERT_TRUE(models::ExportTaehv(other, file).ok());
  engine::Config config = TaehvJob().config;
  TaehvRecipe recipe;
  recipe.settings().model = "taehv1_5";
  recipe.settings().convert_from = file;
  ASSERT_TRUE(recipe.Check(&config).ok());
  const Status built = recipe.Build(config, 9);
  ASSERT_TRUE(built.ok()) << built.ToString();
  const auto mine = Weights(recipe.model()), theirs = Weights(other),
             fresh = Weights(models::Taehv(*models::FindTaehv("taehv1_5"), 9));
  EXPECT_TRUE(at::equal(mine.at("decoder.4.conv.0.weight"), theirs.at("decoder.4.conv.0.weight")));
  EXPECT_TRUE(at::equal(mine.at("encoder.0.weight"), fresh.at("encoder.0.weight"))) << "12 channels instead of 3";
  recipe.settings().convert_from = folder->path() + "/none.safetensors";
  EXPECT_NE(recipe.Build(config, 9).ToString().find("none.safetensors"), std::string::npos);
  config.checkpoint.weights = file;
  EXPECT_FALSE(recipe.Check(&config).ok()) << "two beginnings";
}

TEST(TaehvRules, EveryKeyOfATeacherCanBeGiven) {
  TaehvRecipe recipe;
  Result<ConfigTree> tree = ConfigTree::Empty("test");
  for (const char* set : {"recipe.teacher.kind=torchscript", "recipe.teacher.path=t.pt", "recipe.teacher.range=[-1,1]",
                          "recipe.teacher.layout=NCTHW", "recipe.teacher.precision=bf16",
                          "recipe.teacher.cache.root=kept", "recipe.teacher.cache.policy=require",
                          "recipe.teacher.cache.stored=f8_e4m3", "recipe.teacher.cache.max_error=0.2"}) {
    ASSERT_TRUE(tree->Override(set).ok());
  }
  ConfigReader reader(*tree);
  reader.Section("recipe", [&](ConfigReader& r) { recipe.Declare(r); });
  const Status read = reader.Finish();
  EXPECT_TRUE(read.ok()) << read.ToString();
  EXPECT_EQ(recipe.settings().teacher.cache.root, "kept");
  EXPECT_EQ(recipe.settings().teacher.cache.stored, cache::Storage::kF8);
}

TEST(TaehvRules, DistillBringsTheAuthorsSettings) {
  TaehvRecipe recipe;
  Result<ConfigTree> tree = ConfigTree::Empty("test");
  ASSERT_TRUE(tree->Override("recipe.mode=distill").ok());
  ConfigReader reader(*tree);
  reader.Section("recipe", [&](ConfigReader& r) { recipe.Declare(r); });
  engine::Config config;
  recipe.Defaults(&config);
  EXPECT_EQ(recipe.settings().encoder, 1);
  EXPECT_EQ(recipe.settings().adversarial, 1);
  EXPECT_EQ(config.train.batch, 16u);
  EXPECT_EQ(config.train.optimizer.lr, 3e-4);
  EXPECT_EQ(config.train.precision, engine::Precision::kFp16);
  EXPECT_EQ(config.train.schedule.kind, engine::Schedule::Kind::kConstant);
  EXPECT_EQ(config.train.ema.decay, 0.95);
  EXPECT_EQ(recipe.settings().seraena.optimizer.beta2, 0.99);
}

}  // namespace
}  // namespace lockstep::recipes
