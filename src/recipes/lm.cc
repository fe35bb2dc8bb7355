#include "recipes/lm.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "models/weights.h"

namespace lockstep::recipes {
namespace {

constexpr const char* kLoraA = ".lora_A";
constexpr const char* kLoraB = ".lora_B";

}  // namespace

void LmRecipe::Side::Add(std::shared_ptr<const data::PackedSource> set) {
  if (!set) return;
  most_documents = std::max(most_documents, set->most_documents());
  sets.push_back(std::move(set));
}

uint64_t LmRecipe::Side::Labelled(uint64_t index) const {
  if (!mixed) return sets.front()->Labelled(index);
  const data::MixedSource::Place place = mixed->Find(index);
  return sets[place.part]->Labelled(place.index);
}

Result<std::string> LmRecipe::IndexData() {
  if (mix_.empty()) {
    Result<std::string> index = data::IndexCorpus(corpus_);
    return index.ok() ? index : index.status().Context("data.path");
  }
  std::vector<std::string> all;
  for (size_t i = 0; i < mix_.size(); ++i) {
    Result<std::string> one = data::IndexCorpus(mix_[i].corpus);
    if (!one.ok()) return one.status().Context(fmt::format("data.mix[{}]", i));
    all.push_back(std::move(*one));
  }
  return data::JoinIndexes(all);
}

void LmRecipe::UseIndex(std::shared_ptr<const std::string> index) {
  if (mix_.empty()) {
    corpus_.index = std::move(index);
    return;
  }
  Result<std::vector<std::string>> all = data::SplitIndexes(*index);
  for (size_t i = 0; all.ok() && i < mix_.size() && i < all->size(); ++i) {
    if (!(*all)[i].empty()) mix_[i].corpus.index = std::make_shared<const std::string>(std::move((*all)[i]));
  }
}

Result<data::PackedSplit> LmRecipe::OpenSet(const data::CorpusConfig& config, const engine::Config& engine,
                                            uint64_t most_validation) const {
  auto corpus = data::OpenCorpus(config);
  if (!corpus.ok()) return corpus.status().Context(config.path.empty() ? "data" : "data.path");
  auto split = data::PackCorpus(*corpus, length_, engine.data.validation.fraction, most_validation, engine.run.seed);
  return split.ok() ? split : split.status().Context("data");
}

Result<engine::Sources> LmRecipe::Open(const engine::Config& config) {
  train_ = validation_ = {};
  if (mix_.empty()) {
    Result<data::PackedSplit> split = OpenSet(corpus_, config, config.data.validation.samples);
    if (!split.ok()) return split.status();
    LOCKSTEP_RETURN_IF_ERROR(ChooseVocabulary(split->train->corpus().vocabulary()));
    train_.Add(split->train);
    validation_.Add(split->validation);
    return engine::Sources{split->train, split->validation};
  }
  std::vector<engine::Sources> sets;
  std::vector<double> weights;
  for (size_t i = 0; i < mix_.size(); ++i) {
    Result<data::PackedSplit> split = OpenSet(mix_[i].corpus, config, 0);
    if (!split.ok()) return split.status().Context(fmt::format("data.mix[{}]", i));
    const data::Vocabulary vocabulary = split->train->corpus().vocabulary();
    if (i == 0) LOCKSTEP_RETURN_IF_ERROR(ChooseVocabulary(vocabulary));
    if (vocabulary != vocabulary_) {
      return Status(
          Code::kUsage,
          fmt::format("data.mix[{}]: tokens of '{}' ({}), but data.mix[0] has those of '{}' ({})", i,
                      vocabulary.tokenizer, vocabulary.size, vocabulary_.tokenizer, vocabulary_.size),
          "make all packed token files with one tokenizer (docs/formats/tokens.md); text and JSON lines are bytes");
    }
    train_.Add(split->train);
    validation_.Add(split->validation);
    sets.push_back({split->train, split->validation});
    weights.push_back(mix_[i].weight);
  }
  Result<engine::Sources> mixed = engine::Mix(sets, weights, config);
  if (!mixed.ok()) return mixed.status().Context("data.mix");
  train_.mixed = std::static_pointer_cast<const data::MixedSource>(mixed->train);
  validation_.mixed = std::static_pointer_cast<const data::MixedSource>(mixed->validation);
  return mixed;
}

Status LmRecipe::Build(const engine::Config& config, uint64_t seed) {
  using Weights = models::Decoder::Weights;
  const bool from_folder = settings_.is_folder() && !shrunk_ && config.checkpoint.weights.empty();
  model_ = std::make_shared<models::Decoder>(shape_, seed,
                                             undrawn_      ? Weights::kUnallocated
                                             : from_folder ? Weights::kAllocated
                                                           : Weights::kDrawn);
  model_->AddGradientsInPlace();
  if (from_folder) {
    Result<models::DecoderFile> file = models::DecoderFile::Open(settings_.model);
    if (!file.ok()) return file.status().Context("recipe.model");
    if (undrawn_) {
      file_ = std::move(*file);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(file->Load(*model_).Context("recipe.model"));
    }
    base_ = settings_.model;
  }
  return settings_.lora.on() ? model_->AddLora(settings_.lora).Context("recipe.lora.targets") : Status::Ok();
}

engine::PlanFacts LmRecipe::Plan() const {
  const models::DecoderConfig& c = shape_;
  plan::LmSample sample{.vocabulary = c.vocabulary,
                        .width = c.width,
                        .layers = c.layers,
                        .heads = c.heads,
                        .kv_heads = c.kv_heads,
                        .mlp = c.mlp,
                        .length = static_cast<int64_t>(length_),
                        .tied = c.tied,
                        .bias = c.qkv_bias,
                        .lora = settings_.lora.on()};
  engine::PlanFacts facts{.sample = sample, .drawn_in_parts = !settings_.lora.on()};
  if (sample.lora) facts.notes.emplace_back("activations: with LoRA layers are composed of operators; an estimate");
  return facts;
}

Status LmRecipe::DrawPart(const std::string& name, int64_t begin, const at::Tensor& out) {
  if (file_) return file_->Read(name, begin, out).Context("recipe.model");
  model_->Draw(name, begin, out);
  return Status::Ok();
}

Status LmRecipe::LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights, const std::string& file) {
  const auto parameters = model_->named_parameters();
  std::vector<std::pair<std::string, at::Tensor>> own;
  bool has_lora = false;
  for (const auto& [name, tensor] : weights) {
    if (shape_.tied && name == "lm_head.weight") continue;  // some files hold the embedding twice
    // Of a tied model all names begin with "model.", which reading a file takes off as a wrapper's.
    const bool cut = !parameters.contains(name) && parameters.contains("model." + name);
    own.emplace_back(cut ? "model." + name : name, tensor);
    has_lora = has_lora || name.ends_with(kLoraA);
  }
  // Weights of a whole model: LoRA begins as it was drawn.
  for (const auto& item : parameters) {
    const bool lora = item.key().ends_with(kLoraA) || item.key().ends_with(kLoraB);
    if (lora && !has_lora) own.emplace_back(item.key(), item.value().detach().clone());
  }
  if (has_lora && !settings_.lora.on()) {
    return Status(Code::kUsage, fmt::format("{}: weights with LoRA, and recipe.lora.rank is 0", file),
                  "set recipe.lora as it was, or give the folder that `lockstep export` makes of them");
  }
  return models::LoadWeights(*model_, own).Context(file);
}

nlohmann::json LmRecipe::Identity() const {
  nlohmann::json identity = {
      {"config", shape_.ToJson()}, {"tokenizer", vocabulary_.tokenizer}, {"end", vocabulary_.end}};
  if (settings_.lora.on()) identity["lora"] = settings_.lora.ToJson();
  return identity;
}

engine::RecipeState LmRecipe::Save() {
  engine::RecipeState state;
  if (settings_.lora.on() && !base_.empty()) state.values["base"] = base_;
  return state;
}

std::vector<engine::Unit> LmRecipe::Units() {
  std::vector<engine::Unit> units;
  for (auto& [name, parameters] : model_->Units()) units.push_back({name, parameters});
  return units;
}

// The sum over labelled tokens, divided by what the shape of the batch says alone: a captured graph computes it for any
// batch. Weight says what it weighs.
engine::Loss LmRecipe::ComputeLoss(const engine::TensorBatch& batch) {
  const at::Tensor& tokens = batch["tokens"];
  const at::Tensor& labels = batch["labels"];
  const auto most_documents = static_cast<int64_t>(side().most_documents);
  models::Packing packing;
  // Rows of one document each need no boundaries, and attention has faster kernels for them.
  if (most_documents > 1) packing = {batch["positions"], batch["documents"], batch.count() * most_documents};
  const at::Tensor mean = model_->Loss(model_->Hidden(tokens, packing), labels);
  const at::Tensor labelled = labels.ge(0).sum().to(at::kFloat);
  return {mean * labelled / static_cast<double>(tokens.numel()), static_cast<double>(batch.count()), {}};
}

// In sequences that have all their labels: a label counts 1 / length.
std::optional<double> LmRecipe::Weight(const engine::TensorBatch& batch) {
  uint64_t labelled = 0;
  for (const data::SampleId& id : batch.ids) labelled += side().Labelled(id.index);
  return static_cast<double>(labelled) / static_cast<double>(length_);
}

std::vector<std::pair<std::string, double>> LmRecipe::Derive(const std::vector<std::pair<std::string, double>>& means) {
  return {{"perplexity", std::exp(means.front().second)}};
}

}  // namespace lockstep::recipes
