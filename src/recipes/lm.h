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
  void UseIndex(std::shared_ptr<const std::string> index) override { corpus_.index = std::move(index); }
  Result<engine::Sources> Open(const engine::Config& config) override;
  Status Build(const engine::Config& config, uint64_t seed) override;
  torch::nn::Module& model() override { return *model_; }
  // With LoRA the base is frozen, and whole on every rank.
  bool UndrawnParts() override { return undrawn_ = !settings_.lora.on(); }
  Status DrawPart(const std::string& name, int64_t begin, const at::Tensor& out) override;
  Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) override;
  // {"config": as in config.json, "tokenizer": "bytes", "end": 256}, and "lora" where there is one.
  nlohmann::json Identity() const override;
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
  Status ChooseVocabulary(const data::Vocabulary& of_data);

  LmSettings settings_;
  data::CorpusConfig corpus_;
  uint64_t length_ = 256;
  bool shrunk_ = false, undrawn_ = false;
  std::string base_;
  std::optional<models::DecoderFile> file_;  // of a folder, while parts of it are read
  models::DecoderConfig shape_;
  data::Vocabulary vocabulary_;
  data::PackedSplit sources_;
  std::shared_ptr<models::Decoder> model_;
};

}  // namespace lockstep::recipes
