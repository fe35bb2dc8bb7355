#include "recipes/teacher.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <fstream>

#include "base/config.h"
#include "base/safetensors.h"
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

// ---- latents on disk

class LatentsOnDisk : public TeacherFile {
 protected:
  std::string latents = folder->path() + "/latents";
  TaehvJob job;

  // Trains with a TorchScript teacher that keeps its latents.
  TaehvOutcome Write() {
    WriteTeacher(path, "y");
    job.config.train.steps = 3;
    job.source = nullptr;
    job.clips.kind = "clips";
    job.clips.clips = 12;
    job.set = [this](TaehvSettings& settings) {
      settings.encoder = 1;
      settings.teacher = Config();
      settings.teacher.write = latents;
    };
    return TrainTaehv(2, job)[0];
  }
  TaehvOutcome Read() {
    job.set = [this](TaehvSettings& settings) {
      settings.encoder = 1;
      settings.teacher.kind = "latents";
      settings.teacher.path = latents;
    };
    return TrainTaehv(2, job)[0];
  }
};

TEST_F(LatentsOnDisk, TrainAsTheTeacherThatWroteThem) {
  const TaehvOutcome written = Write();
  ASSERT_TRUE(written.status.ok()) << written.status.ToString();
  const TaehvOutcome read = Read();
  ASSERT_TRUE(read.status.ok()) << read.status.ToString();
  EXPECT_EQ(Apart(written.model, read.model), 0);
}

TEST_F(LatentsOnDisk, AMissingFileIsSaidBeforeTheFirstStep) {
  ASSERT_TRUE(Write().status.ok());
  const std::string victim = LatentsPath(latents, "clip 5", 0);
  ASSERT_EQ(unlink(victim.c_str()), 0);
  const Status status = Read().status;
  EXPECT_NE(status.message().find("1 of 12 clips have no latents, the first: " + victim), std::string::npos)
      << status.ToString();
}

TEST_F(LatentsOnDisk, WhatIsWrongInAFileIsSaidWithItsName) {
  ASSERT_TRUE(Write().status.ok());
  const std::string victim = LatentsPath(latents, "clip 5", 0);
  const at::Tensor frames = at::zeros({12, 3, 16, 16}, at::kByte);
  const auto expect = [&](const std::string& word) {
    const Status status = Read().status;
    EXPECT_NE(status.message().find(victim), std::string::npos) << status.ToString();
    EXPECT_NE(status.message().find(word), std::string::npos) << status.ToString();
  };
  ASSERT_TRUE(WriteLatents(victim, at::zeros({3, 16, 2, 2}), frames).ok());
  expect("made from other frames");
  ASSERT_TRUE(WriteLatents(victim, at::zeros({3, 16, 2, 3}), frames).ok());
  expect("latents are F32 [3, 16, 2, 3], expected F32 [3, 16, 2, 2]");
  at::Tensor broken = at::zeros({3, 16, 2, 2});
  broken[1][0][0][0] = std::nanf("");
  ASSERT_TRUE(WriteLatents(victim, broken, frames).ok());
  expect("value 64 of the latents is nan");
  std::ofstream(victim) << "short";
  expect("clip 5");
}

TEST_F(LatentsOnDisk, NamesStayBelowTheFolder) {
  EXPECT_EQ(LatentsPath("l", "a/b.mp4", 3), "l/a/b.mp4.3.safetensors");
  EXPECT_EQ(LatentsPath("l", "/../x", 0), "l/%2e%2e/x.0.safetensors");
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
              s.teacher.kind = "latents";
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
  for (const char* set :
       {"recipe.teacher.kind=torchscript", "recipe.teacher.path=t.pt", "recipe.teacher.range=[-1,1]",
        "recipe.teacher.layout=NCTHW", "recipe.teacher.precision=bf16", "recipe.teacher.write=kept"}) {
    ASSERT_TRUE(tree->Override(set).ok());
  }
  ConfigReader reader(*tree);
  reader.Section("recipe", [&](ConfigReader& r) { recipe.Declare(r); });
  const Status read = reader.Finish();
  EXPECT_TRUE(read.ok()) << read.ToString();
  EXPECT_EQ(recipe.settings().teacher.write, "kept");
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
