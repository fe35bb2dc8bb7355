// A decoder-only language model trained to predict the next token (docs/train-lm.md). The loss is the mean over the
// labelled tokens of the whole batch, on any number of ranks and passes; validation gives that loss and its perplexity
// on documents that are never trained on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/packed_source.h"
#include "engine/recipe.h"
#include "models/decoder.h"
#include "models/decoder_file.h"

namespace lockstep::recipes {

// The section `recipe`.
struct LmSettings {
  std::string model = "tiny";
  std::optional<int64_t> vocabulary, width, layers, heads, kv_heads, mlp;
  std::optional<bool> tied;
  models::LoraConfig lora;

  void Declare(ConfigReader& reader);
  // Whether `model` is a folder with config.json and weights.
  bool is_folder() const;
  // The shape that the keys ask for. Its vocabulary follows the data unless `vocabulary` or a folder says it.
  Result<models::DecoderConfig> Shape() const;
};

class LmRecipe : public engine::Recipe {
 public:
  std::string name() const override { return "lm"; }
  std::string help() const override { return "language model: predicts the next token of text or packed tokens"; }

  void Defaults(engine::Config* config) override;
  void Declare(ConfigReader& reader) override { settings_.Declare(reader); }
  void DeclareData(ConfigReader& reader, engine::DataConfig* data) override;
  Status Check(engine::Config* config) override;
  void Shrink(engine::Config* config) override;

  Result<std::string> IndexData() override;
  void UseIndex(std::shared_ptr<const std::string> index) override;
  Result<engine::Sources> Open(const engine::Config& config) override;
  Status Build(const engine::Config& config, uint64_t seed) override;
  torch::nn::Module& model() override { return *model_; }
  // With LoRA the base is frozen, and whole on every rank.
  bool UndrawnParts() override { return undrawn_ = !settings_.lora.on(); }
  Status DrawPart(const std::string& name, int64_t begin, const at::Tensor& out) override;
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override;
  // {"config": as in config.json, "tokenizer": "bytes", "end": 256}, and "lora" where there is one.
  nlohmann::json Identity() const override;
  engine::PlanFacts Plan() const override;
  bool ModelNeedsData() const override { return !settings_.vocabulary && !settings_.is_folder(); }
  std::vector<engine::Unit> Units() override;
  void RunUnits(engine::UnitRunner runner) override { model_->RunUnits(std::move(runner)); }

  // With LoRA {"base": the folder whose weights it was added to}, for an exported adapter.
  engine::RecipeState Save() override;

  engine::Loss ComputeLoss(const engine::TensorBatch& batch) override;
  std::optional<double> Weight(const engine::TensorBatch& batch) override;
  std::vector<std::pair<std::string, double>> Derive(const std::vector<std::pair<std::string, double>>& means) override;
  std::vector<std::string> Scores() const override { return {"perplexity"}; }
  std::pair<std::string, bool> Best() const override { return {"perplexity", false}; }
  std::pair<std::string, double> PerSample() const override { return {"tokens", static_cast<double>(length_)}; }

  LmSettings& settings() { return settings_; }
  data::CorpusConfig& corpus() { return corpus_; }
  uint64_t& length() { return length_; }

 private:
  struct Set {
    double weight = 1;
    data::CorpusConfig corpus;
  };
  // What is trained on, or validated with: one corpus, or several that are mixed.
  struct Side {
    std::vector<std::shared_ptr<const data::PackedSource>> sets;
    std::shared_ptr<const data::MixedSource> mixed;  // null: one
    uint64_t most_documents = 0;                     // in one sequence
    void Add(std::shared_ptr<const data::PackedSource> set);
    uint64_t Labelled(uint64_t index) const;
  };
  static void DeclareCorpus(ConfigReader& reader, data::CorpusConfig* corpus);
  Result<data::PackedSplit> OpenSet(const data::CorpusConfig& corpus, const engine::Config& config,
                                    uint64_t most_validation) const;
  const Side& side() const { return model_->is_training() ? train_ : validation_; }
  Status ChooseVocabulary(const data::Vocabulary& of_data);

  LmSettings settings_;
  data::CorpusConfig corpus_;
  std::vector<Set> mix_;  // empty: corpus_ alone
  uint64_t length_ = 256;
  bool shrunk_ = false, undrawn_ = false;
  std::string base_;
  std::optional<models::DecoderFile> file_;  // of a folder, while parts of it are read
  models::DecoderConfig shape_;
  data::Vocabulary vocabulary_;
  Side train_, validation_;
  std::shared_ptr<models::Decoder> model_;
};

}  // namespace lockstep::recipes
