// A small language model on ranks that are threads: the same training however the batch is divided, stopped or
// recomputed, and what is refused before it begins.
#include "recipes/lm.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <gmock/gmock.h>

#include "base/safetensors.h"
#include "engine/state.h"
#include "recipes/lm_bed.h"

namespace lockstep::recipes {
namespace {

using testing::HasSubstr;

// Float32 sums in another order, over four steps of SGD.
constexpr double kLmTolerance = 1e-5;

const LmOutcome& PlainLm() {
  static const LmOutcome plain = TrainLm(1, {})[0];
  return plain;
}

TEST(Lm, PassesWithUnequalNumbersOfLabelsEqualOneBatch) {
  ASSERT_TRUE(PlainLm().status.ok()) << PlainLm().status.ToString();
  for (const int world : {1, 2}) {
    for (const uint64_t micro : {1, 4}) {
      LmJob job;
      job.set = [&](LmRecipe&, engine::Config& config) { config.train.micro_batch = micro; };
      const LmOutcome outcome = TrainLm(world, job)[0];
      ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
      EXPECT_LT(LmApart(outcome.weights, PlainLm().weights), kLmTolerance) << world << " ranks, micro-batch " << micro;
      EXPECT_NEAR(outcome.series.at("loss")[0], PlainLm().series.at("loss")[0], 1e-5);
    }
  }
}

// By the definition, with a cross-entropy of its own: the mean over every token of the batch that has a label.
TEST(Lm, TheLossIsTheMeanOverLabelledTokens) {
  LmRecipe recipe;
  engine::Config config;
  ASSERT_TRUE(ConfigureLm({}, recipe, &config).ok());
  const auto sources = recipe.Open(config);
  ASSERT_TRUE(sources.ok()) << sources.status().ToString();
  ASSERT_TRUE(recipe.Build(config, config.run.seed).ok());
  auto sampler = data::Sampler::Create(sources->train->size(), {.seed = config.run.seed}, 6, config.data.last_batch);
  double sum = 0, labelled = 0;
  std::vector<double> means;
  for (const data::SampleId& id : sampler->Take()) {
    std::vector<at::Tensor> fields(4);
    std::vector<std::byte*> out;
    for (at::Tensor& field : fields) {
      field = at::empty({1, 16}, at::kLong);
      out.push_back(static_cast<std::byte*>(field.data_ptr()));
    }
    ASSERT_TRUE(sources->train->Read({.index = id.index}, out).ok());
    auto& model = dynamic_cast<models::Decoder&>(recipe.model());
    const at::Tensor logits = model.Logits(model.Hidden(fields[0], {fields[2], fields[3], 0}));
    const double one = at::cross_entropy_loss(logits[0], fields[1][0], {}, at::Reduction::Sum).item<double>();
    const auto count = fields[1].ge(0).sum().item<double>();
    sum += one;
    labelled += count;
    means.push_back(one / count);
  }
  const double naive = (means[0] + means[1] + means[2] + means[3] + means[4] + means[5]) / 6;
  EXPECT_GT(std::abs(sum / labelled - naive), 1e-4) << "the batch is no test: every sequence has as many labels";
  EXPECT_NEAR(PlainLm().series.at("loss")[0], sum / labelled, 1e-5);
}

TEST(Lm, RecomputedLayersGiveTheSameBits) {
  LmJob job;
  job.set = [](LmRecipe&, engine::Config& config) { config.train.recompute = true; };
  const LmOutcome outcome = TrainLm(1, job)[0];
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_EQ(LmApart(outcome.weights, PlainLm().weights), 0);
}

TEST(Lm, ReproducibleHasTheSameBitsOnTwoRanks) {
  LmJob job;
  job.set = [](LmRecipe&, engine::Config& config) {
    config.train.reproducible = true;
    config.train.shards = 4;
  };
  const LmOutcome one = TrainLm(1, job)[0], two = TrainLm(2, job)[1];
  ASSERT_TRUE(one.status.ok() && two.status.ok()) << one.status.ToString() << two.status.ToString();
  EXPECT_EQ(LmApart(one.weights, two.weights), 0);
}

TEST(Lm, AResumedRunIsTheUninterruptedOne) {
  const TempDir run = *TempDir::Create();
  LmJob job;
  job.options.run_dir = run.path();
  job.options.stop_at = 2;
  ASSERT_TRUE(TrainLm(2, job)[0].status.ok());
  job.options.stop_at.reset();
  const LmOutcome resumed = TrainLm(2, job)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.ToString();
  ASSERT_EQ(resumed.series.at("loss").size(), 2u) << "it began anew";
  EXPECT_EQ(LmApart(resumed.weights, TrainLm(2, {})[0].weights), 0);
  // Of another text the position means nothing, nor the weights to another shape.
  job.set = [](LmRecipe& recipe, engine::Config&) { recipe.length() = 15; };
  EXPECT_THAT(TrainLm(1, job)[0].status.ToString(), HasSubstr("other training data"));
  job.set = [](LmRecipe& recipe, engine::Config&) { recipe.settings().width = 64; };
  EXPECT_FALSE(TrainLm(1, job)[0].status.ok());
}

// The section `data` of a job.
void ReadData(LmRecipe& recipe, engine::Config& config, const std::string& yaml) {
  const ConfigTree tree = *ConfigTree::Parse("data: " + yaml, "c.yaml", ConfigTree::Format::kYaml);
  ConfigReader reader(tree);
  reader.Section("data", [&](ConfigReader& r) { recipe.DeclareData(r, &config.data); });
  const Status read = reader.Finish();
  ASSERT_TRUE(read.ok()) << read.ToString();
}

TEST(Lm, CorporaAreMixedByWeightWithTheSameBitsOnTwoRanksAndAfterAResume) {
  LmJob job;
  job.set = [](LmRecipe& recipe, engine::Config& config) {
    recipe.corpus().path.clear();
    config.train.reproducible = true;
    config.train.shards = 2;
    config.data.validation.fraction = 0.3;
    config.data.validation.samples = 7;
    ReadData(recipe, config,
             fmt::format("{{mix: [{{weight: 0.75, path: {}}}, {{weight: 0.25, documents: 40}}]}}", UnequalDocuments()));
  };
  const LmOutcome one = TrainLm(1, job)[0];
  ASSERT_TRUE(one.status.ok()) << one.status.ToString();
  const TempDir run = *TempDir::Create();
  job.options.run_dir = run.path();
  job.options.stop_at = 2;
  ASSERT_TRUE(TrainLm(2, job)[0].status.ok());
  job.options.stop_at.reset();
  const LmOutcome resumed = TrainLm(1, job)[0];
  ASSERT_TRUE(resumed.status.ok()) << resumed.status.ToString();
  ASSERT_EQ(resumed.series.at("loss").size(), 2u) << "it began anew";
  EXPECT_EQ(LmApart(resumed.weights, one.weights), 0);
  EXPECT_EQ(resumed.series.at("val/loss").back(), one.series.at("val/loss").back());
  EXPECT_GT(LmApart(one.weights, PlainLm().weights), kLmTolerance) << "the second corpus has no effect";
}

// What a run saved, by name: with sharded parameters no rank has all of them.
std::map<std::string, at::Tensor> SavedLm(const LmJob& job) {
  const TempDir run = *TempDir::Create();
  LmJob saving = job;
  saving.options.run_dir = run.path();
  const Status status = TrainLm(2, saving)[0].status;
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::map<std::string, at::Tensor> weights;
  const auto read = engine::ReadWeights(run.path());
  EXPECT_TRUE(read.ok()) << read.status().ToString();
  if (read.ok()) weights.insert(read->begin(), read->end());
  return weights;
}

TEST(Lm, ShardedTrainingsAreThatOfEqualRanks) {
  for (const bool tied : {true, false}) {
    const auto with = [&](int stage) {
      LmJob job;
      job.set = [=](LmRecipe& recipe, engine::Config& config) {
        recipe.settings().tied = tied;
        config.train.zero.stage = stage;
        config.train.zero.persistent = 0;
        config.train.micro_batch = 2;
        config.train.recompute = tied;
        config.data.validation.fraction = 0.3;
      };
      return SavedLm(job);
    };
    const auto equal = with(0);
    for (const int stage : {1, 2, 3}) {
      EXPECT_LT(LmApart(with(stage), equal), kLmTolerance) << "stage " << stage << (tied ? ", tied" : "");
    }
  }
}

TEST(Lm, ValidationIsTheMeanOverLabelledTokensForAnyBatch) {
  std::map<uint64_t, std::pair<double, double>> scores;
  for (const uint64_t batch : {1, 3}) {
    LmJob job;
    job.set = [&](LmRecipe&, engine::Config& config) {
      config.data.validation.fraction = 0.3;
      config.data.validation.batch = batch;
    };
    const LmOutcome outcome = TrainLm(2, job)[0];
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    scores[batch] = {outcome.series.at("val/loss").back(), outcome.series.at("val/perplexity").back()};
    EXPECT_NEAR(scores[batch].second, std::exp(scores[batch].first), 1e-9);
  }
  EXPECT_NEAR(scores[1].first, scores[3].first, 1e-5);
}

// On two ranks: one error, the same on both, so that they leave with the same exit code.
TEST(Lm, WhatCannotTrainIsSaidByAllRanksBeforeAnythingIsAllocated) {
  const TempDir folder = *TempDir::Create();
  const auto file = [&](const char* name, std::string_view text) {
    EXPECT_TRUE(WriteFileAtomic(folder / name, std::string(text)).ok());
    return folder / name;
  };
  const std::string empty = file("empty.txt", ""), binary = file("binary.txt", std::string_view("PK\0\1\2", 5));
  const std::string weights = folder / "weights.safetensors";
  {
    const std::vector<float> zeros(5 * 7);
    auto writer = SafetensorsWriter::Create(weights, {{"model.embed_tokens.weight", Dtype::kF32, {5, 7}}});
    ASSERT_TRUE(writer.ok() && writer->Write("model.embed_tokens.weight", zeros.data(), zeros.size() * 4).ok());
    ASSERT_TRUE(writer->Finish().ok());
  }
  struct Row {
    const char* what;
    std::function<void(LmRecipe&, engine::Config&)> set;
    const char* says;
  };
  const Row rows[] = {
      {"shape", [](LmRecipe& r, engine::Config&) { r.settings().model = "tinny"; }, "did you mean 'tiny'"},
      {"heads", [](LmRecipe& r, engine::Config&) { r.settings().heads = 5; }, "recipe.model"},
      {"folder", [](LmRecipe& r, engine::Config&) { r.settings().model = "./nowhere"; }, "nowhere/config.json"},
      {"vocabulary", [](LmRecipe& r, engine::Config&) { r.settings().vocabulary = 256; },
       "the data have a vocabulary of 257 ('bytes'), the model one of 256 (recipe.vocabulary)"},
      {"length", [](LmRecipe& r, engine::Config&) { r.length() = 100000; }, "data.length 100000"},
      {"path", [](LmRecipe& r, engine::Config&) { r.corpus().path = "/nowhere.txt"; }, "data.path"},
      {"empty text", [&](LmRecipe& r, engine::Config&) { r.corpus().path = empty; }, "is empty"},
      {"binary text", [&](LmRecipe& r, engine::Config&) { r.corpus().path = binary; }, "binary, not text"},
      {"set of a mix",
       [](LmRecipe& r, engine::Config& c) {
         r.corpus().path.clear();
         ReadData(r, c, "{mix: [{weight: 1, documents: 40}, {weight: 1, path: /nowhere.txt}]}");
       },
       "data.mix[1]"},
      {"LoRA targets",
       [](LmRecipe& r, engine::Config&) {
         r.settings().lora.rank = 2;
         r.settings().lora.targets = {"*.q_porj.weight"};
       },
       "did you mean '*.q_proj.weight'"},
      {"weights", [&](LmRecipe&, engine::Config& c) { c.checkpoint.weights = weights; }, "do not fit the model"},
      {"sharded weights",
       [&](LmRecipe&, engine::Config& c) {
         c.checkpoint.weights = weights;
         c.train.zero.stage = 3;
       },
       "do not fit the model"},
      {"ranks", [](LmRecipe&, engine::Config& c) { c.train.batch = 1; }, "train.batch is 1, but there are 2 ranks"},
      {"memory",
       [](LmRecipe& r, engine::Config& c) {
         r.settings().width = 1 << 16;  // 64 GiB for each layer
         r.settings().mlp = 1 << 20;
         c.train.zero.stage = 3;
       },
       "train.zero.stage 3: the state of 2 ranks needs"},
  };
  for (const Row& row : rows) {
    LmJob job;
    job.set = row.set;
    const std::vector<LmOutcome> outcomes = TrainLm(2, job);
    for (const LmOutcome& outcome : outcomes) {
      ASSERT_FALSE(outcome.status.ok()) << row.what;
      EXPECT_THAT(outcome.status.ToString(), HasSubstr(row.says)) << row.what;
      EXPECT_EQ(outcome.status.code(), outcomes[0].status.code()) << row.what;
      EXPECT_TRUE(outcome.weights.empty());
    }
  }
}

TEST(Lm, AVocabularyMayBeRoundedUp) {
  LmJob job;
  job.set = [](LmRecipe& recipe, engine::Config&) { recipe.settings().vocabulary = 320; };
  const LmOutcome outcome = TrainLm(1, job)[0];
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_EQ(outcome.weights.at("model.embed_tokens.weight").size(0), 320);
}

}  // namespace
}  // namespace lockstep::recipes
