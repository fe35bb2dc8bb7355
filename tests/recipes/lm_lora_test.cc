// A language model of which a part is trained: LoRA beside frozen matrices, or some of its own parameters.
#include <gmock/gmock.h>

#include "recipes/lm_bed.h"
#include "recipes/load_lm.h"

namespace lockstep::recipes {
namespace {

using testing::HasSubstr;

struct PartlyTrained {
  const char* what;
  std::function<void(LmRecipe&, engine::Config&)> set;
  int world = 2;
};

void PrintTo(const PartlyTrained& row, std::ostream* out) { *out << row.what; }

void UseLora(LmRecipe& recipe, engine::Config& config) {
  recipe.settings().lora = {.rank = 4, .alpha = 8, .targets = {"*.q_proj.weight", "*.layers.1.mlp.*"}};
  config.train.zero.persistent = 100;  // of 32 x 4 = 128: LoRA is sharded
}

const PartlyTrained kPartlyTrained[] = {
    {"LoRA", UseLora},
    {"LoRA, own head",
     [](LmRecipe& recipe, engine::Config& config) {
       UseLora(recipe, config);
       recipe.settings().tied = false;
     }},
    {"LoRA with dropout",
     [](LmRecipe& recipe, engine::Config& config) {
       UseLora(recipe, config);
       recipe.settings().lora.dropout = 0.25;
     },
     1},  // ranks that are threads would share torch's generator
    {"frozen by groups",
     [](LmRecipe&, engine::Config& config) {
       config.train.zero.persistent = 100;
       config.train.groups = {{.match = "model.embed_tokens.weight", .freeze = true},
                              {.match = "model.layers.0.*", .freeze = true},
                              {.match = "*.up_proj.weight", .freeze = true}};
     }},
};

double TrainedApart(const LmOutcome& a, const LmOutcome& b) { return LmApart(a.trained, b.trained); }

class LmPart : public testing::TestWithParam<PartlyTrained> {
 protected:
  static LmOutcome Train(int world, int stage, bool recompute, bool offload = false) {
    LmJob job;
    job.options.queued = offload;
    job.set = [&](LmRecipe& recipe, engine::Config& config) {
      config.train.bucket = config.train.first_bucket = 4096;
      GetParam().set(recipe, config);
      config.train.zero.stage = stage;
      config.train.recompute = recompute;
      config.train.offload.optimizer = config.train.offload.parameters = offload;
    };
    return TrainLm(world, job)[0];
  }
};

TEST_P(LmPart, EveryStageOfZeroHasTheBitsOfDdp) {
  const LmOutcome ddp = Train(GetParam().world, 0, false);
  ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool recompute : {false, true}) {
      const LmOutcome zero = Train(GetParam().world, stage, recompute);
      ASSERT_TRUE(zero.status.ok()) << stage << ": " << zero.status.ToString();
      EXPECT_EQ(TrainedApart(zero, ddp), 0) << "stage " << stage << (recompute ? ", recomputed" : "");
      EXPECT_EQ(zero.series.at("loss"), ddp.series.at("loss"));
    }
  }
}

TEST_P(LmPart, OffloadedParametersHaveTheBitsOfDdp) {
  const LmOutcome ddp = Train(GetParam().world, 0, false);
  ASSERT_TRUE(ddp.status.ok()) << ddp.status.ToString();
  for (const bool recompute : {false, true}) {
    const LmOutcome offloaded = Train(GetParam().world, 3, recompute, /*offload=*/true);
    ASSERT_TRUE(offloaded.status.ok()) << offloaded.status.ToString();
    EXPECT_EQ(TrainedApart(offloaded, ddp), 0) << (recompute ? "recomputed" : "");
    EXPECT_EQ(offloaded.series.at("loss"), ddp.series.at("loss"));
  }
}

TEST_P(LmPart, WhatIsFrozenStaysAsItWasAndTheRestTrains) {
  LmRecipe first;
  engine::Config config;
  LmJob job;
  job.set = GetParam().set;
  ASSERT_TRUE(ConfigureLm(job, first, &config).ok());
  ASSERT_TRUE(first.Open(config).ok());
  ASSERT_TRUE(first.Build(config, config.run.seed).ok());
  const LmOutcome outcome = Train(1, 0, false);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  size_t trained = 0;
  for (const auto& [name, tensor] : models::StateDict(first.model())) {
    const bool same = at::equal(outcome.weights.at(name), tensor);
    EXPECT_EQ(same, !outcome.trained.contains(name)) << name;
    trained += same ? 0 : 1;
  }
  EXPECT_EQ(trained, outcome.trained.size());
  EXPECT_GT(trained, 0u);
  EXPECT_LT(trained, outcome.weights.size());
  for (const auto& [name, tensor] : outcome.trained) {
    EXPECT_EQ(name.find(".lora_") != std::string::npos,
              outcome.weights.contains("model.layers.0.self_attn.q_proj.lora_A"))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LmPart, testing::ValuesIn(kPartlyTrained),
                         [](const auto& info) { return std::to_string(info.index); });

TEST(LmLora, ARunIsResumedLoadedMergedAndWrittenAsAnAdapter) {
  const TempDir run = *TempDir::Create();
  LmJob job;
  job.set = UseLora;
  const LmOutcome whole = TrainLm(2, job)[0];
  job.options.run_dir = run.path();
  job.options.stop_at = 2;
  ASSERT_TRUE(TrainLm(2, job)[0].status.ok());
  job.options.stop_at.reset();
  const LmOutcome resumed = TrainLm(2, job)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.ToString();
  ASSERT_EQ(resumed.series.at("loss").size(), 2u) << "it began anew";
  EXPECT_EQ(LmApart(resumed.weights, whole.weights), 0);

  const Result<LoadedLm> loaded = LoadLm(run.path());
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  const at::Tensor tokens = at::arange(14).view({2, 7});
  const auto logits = [&](models::Decoder& model) { return model.Logits(model.Hidden(tokens, {})); };
  auto cache = loaded->model->NewCache(2, 7);
  const at::Tensor next = loaded->model->Next(tokens, cache.get());
  EXPECT_LT((next - logits(*loaded->model).select(1, 6)).abs().max().item<double>(), 1e-5) << "as generate computes it";

  const TempDir out = *TempDir::Create();
  ASSERT_TRUE(ExportLm(*loaded, out / "merged", Dtype::kF32).ok());
  const Result<LoadedLm> merged = LoadLm(out / "merged");
  ASSERT_TRUE(merged.ok()) << merged.status().ToString();
  EXPECT_FALSE(merged->model->lora().on());
  EXPECT_LT((logits(*merged->model) - logits(*loaded->model)).abs().max().item<double>(), 1e-5);
  EXPECT_THAT(ExportAdapter(*merged, out / "none", Dtype::kF32).ToString(), HasSubstr("no LoRA"));
  ASSERT_TRUE(ExportAdapter(*loaded, out / "adapter", Dtype::kF32).ok());
  EXPECT_EQ(ReadJsonFile(out / "adapter/adapter_config.json")->value("r", 0), 4);

  // LoRA on the merged folder: the adapter says whose it is. And whole weights below a fresh LoRA.
  const auto begins = [&](const std::function<void(LmRecipe&, engine::Config&)>& set) {
    LmJob other;
    other.set = [&](LmRecipe& recipe, engine::Config& config) {
      UseLora(recipe, config);
      set(recipe, config);
    };
    const LmOutcome outcome = TrainLm(1, other)[0];
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    return outcome.series.at("loss")[0];
  };
  const double plain = begins([](LmRecipe&, engine::Config&) {});
  const double folder = begins([&](LmRecipe& recipe, engine::Config&) { recipe.settings().model = out / "merged"; });
  const double weights = begins([&](LmRecipe&, engine::Config& config) { config.checkpoint.weights = out / "merged"; });
  EXPECT_NE(plain, folder);
  EXPECT_EQ(folder, weights);

  // Another LoRA, or none, is another model.
  job.set = [](LmRecipe& recipe, engine::Config& config) {
    UseLora(recipe, config);
    recipe.settings().lora.alpha = 9;
  };
  EXPECT_THAT(TrainLm(1, job)[0].status.ToString(), HasSubstr("lora is {\"alpha\":9.0"));
  job.set = [](LmRecipe&, engine::Config&) {};
  EXPECT_THAT(TrainLm(1, job)[0].status.ToString(), HasSubstr("lora is not here"));
}

}  // namespace
}  // namespace lockstep::recipes
