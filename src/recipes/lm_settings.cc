// What can be configured about a language model, and the rules between keys.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "recipes/lm.h"

namespace lockstep::recipes {

void LmSettings::Declare(ConfigReader& r) {
  r.Field("model", &model,
          {.help = "a shape: tiny, 124m, qwen2.5-0.5b, ...; or a folder with config.json and weights"});
  r.Field("vocabulary", &vocabulary, {.min = 2, .help = "tokens the model knows; unset: those of the data"});
  r.Field("width", &width, {.min = 1, .help = "instead of the shape's, as the next ones"});
  r.Field("layers", &layers, {.min = 1});
  r.Field("heads", &heads, {.min = 1});
  r.Field("kv_heads", &kv_heads, {.min = 1, .help = "heads of keys and values; divides heads"});
  r.Field("mlp", &mlp, {.min = 1, .help = "width of the hidden layer between two layers of attention"});
  r.Field("tied", &tied, {.help = "the head uses the embedding's weight"});
  r.Section("lora", [this](ConfigReader& l) {
    l.Field("rank", &lora.rank, {.min = 0, .max = 65536, .help = "of A and B beside each chosen matrix; 0: no LoRA"});
    l.When(lora.on(), "recipe.lora.rank is 0: there is no LoRA", [&] {
      l.Field("alpha", &lora.alpha, {.above = 0, .help = "B A counts alpha / rank"});
      l.Field("targets", &lora.targets, {.min_items = 1, .help = "globs over names of the layers' weight matrices"});
      l.Field("dropout", &lora.dropout, {.min = 0, .max = 0.999, .help = "of the input of A, in training"});
    });
  });
}

bool LmSettings::is_folder() const {
  std::error_code ignored;
  return model.find('/') != std::string::npos || std::filesystem::is_directory(model, ignored);
}

Result<models::DecoderConfig> LmSettings::Shape() const {
  models::DecoderConfig shape;
  if (is_folder()) {
    const std::string path = model + "/config.json";
    Result<std::string> text = ReadFile(path);
    if (!text.ok()) return text.status();
    const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return Status(Code::kUsage, fmt::format("'{}': expected a JSON object", path));
    Result<models::DecoderConfig> read = models::DecoderConfig::FromJson(json);
    if (!read.ok()) return read.status().Context(path);
    shape = *read;
  } else {
    const auto& named = models::DecoderConfig::Named();
    const auto it = named.find(model);
    if (it == named.end()) {
      std::vector<std::string> names;
      for (const auto& [name, config] : named) names.push_back(name);
      return Status(Code::kUsage, fmt::format("there is no shape '{}'{}", Printable(model), DidYouMean(model, names)),
                    fmt::format("shapes: {}; a folder is written with a slash: ./{}", Join(names, " "), model));
    }
    shape = it->second;
  }
  for (const auto& [from, to] :
       {std::pair(&vocabulary, &shape.vocabulary), std::pair(&width, &shape.width), std::pair(&layers, &shape.layers),
        std::pair(&heads, &shape.heads), std::pair(&kv_heads, &shape.kv_heads), std::pair(&mlp, &shape.mlp)}) {
    *to = from->value_or(*to);
  }
  shape.tied = tied.value_or(shape.tied);
  LOCKSTEP_RETURN_IF_ERROR(shape.Check());
  return shape;
}

void LmRecipe::Defaults(engine::Config* config) {
  engine::TrainConfig& train = config->train;
  train.steps = 2000;
  train.batch = 32;
  train.optimizer.lr = 1e-3;
  train.optimizer.beta2 = 0.95;
  train.optimizer.weight_decay = 0.1;
  train.clip_norm = 1;
  train.schedule.warmup = 100;
  train.schedule.floor = 0.1;
  // Weight decay is for matrices. A pattern must match something: a model of the Llama layout has no biases.
  train.groups = {{.match = "*norm.weight", .weight_decay = 0}};
  if (const auto shape = settings_.Shape(); !shape.ok() || shape->qkv_bias) {
    train.groups.push_back({.match = "*.bias", .weight_decay = 0});
  }
  config->data.augment = false;  // text has none, and what is not augmented may be cached
  config->data.validation.every = 500;
  config->data.validation.fraction = 0.01;
  config->data.validation.samples = 256;
  config->checkpoint.every = 500;
}

void LmRecipe::DeclareCorpus(ConfigReader& r, data::CorpusConfig* corpus) {
  data::CorpusConfig& c = *corpus;
  r.Choice("kind", &c.kind, {"auto", "generated", "text", "jsonl", "tokens"},
           {.help = "of the data; auto: by the file, generated without a path"});
  const bool may_have_path = c.kind != "generated";
  r.When(may_have_path, "kind is generated: other kinds read files", [&] {
    r.Field("path", &c.path,
            {.required = may_have_path && c.kind != "auto",
             .help = "text, JSON lines or packed tokens (`lockstep tokens`): a file or a folder"});
  });
  const bool generated = c.kind == "generated" || (c.kind == "auto" && c.path.empty());
  r.When(generated, "only for kind: generated", [&] {
    r.Field("documents", &c.documents, {.min = 1, .help = "number of generated documents"});
    r.Field("documents_seed", &c.seed, {.help = "what they are drawn from"});
  });
  r.When(!generated && (c.kind == "auto" || c.kind == "jsonl"), "only for kind: jsonl",
         [&] { r.Field("field", &c.field, {.help = "of a JSON line that holds the text"}); });
}

void LmRecipe::DeclareData(ConfigReader& r, engine::DataConfig* data) {
  r.List<Set>("mix", &mix_,
              [](ConfigReader& m, Set* set) {
                m.Field("weight", &set->weight,
                        {.required = true, .above = 0, .help = "share of the samples, of all weights"});
                DeclareCorpus(m, &set->corpus);
              },
              {.help = "several corpora, drawn by weight: each has a weight and the keys kind to field; empty: one"});
  data->mixed = !mix_.empty();
  r.When(!data->mixed, "each set of data.mix has its own", [&] { DeclareCorpus(r, &corpus_); });
  r.Field("length", &length_, {.min = 1, .max = 1 << 24, .help = "tokens of a sequence, which is one sample"});
  std::vector<std::string> none;
  r.When(false, "documents are packed one behind the other, so that every sequence is full and has data.length tokens",
         [&] { r.Field("buckets", &none, {.help = "of recipes on clips"}); });
}

Status LmRecipe::Check(engine::Config* /*config*/) {
  Result<models::DecoderConfig> shape = settings_.Shape();
  if (!shape.ok()) return shape.status().Context("recipe.model");
  shape_ = *shape;
  if (shrunk_) {
    shape_.width = 64;
    shape_.layers = 2;
    shape_.heads = 4;
    shape_.kv_heads = 2;
    shape_.mlp = 128;
  }
  if (settings_.is_folder() && static_cast<int64_t>(length_) > shape_.positions) {
    return Status(Code::kUsage,
                  fmt::format("data.length is {}, and the model in '{}' was made for {} positions", length_,
                              settings_.model, shape_.positions),
                  "lower data.length");
  }
  if (!settings_.lora.on()) return Status::Ok();
  LOCKSTEP_RETURN_IF_ERROR(settings_.lora.Choose(*shape).status().Context("recipe.lora.targets"));
  // A smaller version may lack the layers that are named.
  if (shrunk_ && !settings_.lora.Choose(shape_).ok()) settings_.lora.targets = models::LoraConfig().targets;
  return Status::Ok();
}

void LmRecipe::Shrink(engine::Config* /*config*/) {
  shrunk_ = true;
  constexpr uint64_t kFew = 256;
  corpus_.documents = std::min(corpus_.documents, kFew);
  for (Set& set : mix_) set.corpus.documents = std::min(set.corpus.documents, kFew);
  length_ = std::min<uint64_t>(length_, 64);
}

// Before any memory is taken for the model.
Status LmRecipe::ChooseVocabulary(const data::Vocabulary& of_data) {
  vocabulary_ = of_data;
  const auto needed = static_cast<int64_t>(of_data.size);
  const bool own_words = settings_.is_folder() && !settings_.vocabulary;
  if (!settings_.vocabulary && !settings_.is_folder()) shape_.vocabulary = needed;
  if (shape_.vocabulary < needed) {
    return Status(
        Code::kUsage,
        fmt::format("the data have a vocabulary of {} ('{}'), the model one of {} ({})", needed, of_data.tokenizer,
                    shape_.vocabulary, settings_.vocabulary ? "recipe.vocabulary" : settings_.model),
        settings_.vocabulary ? fmt::format("set recipe.vocabulary to at least {}, or leave it out", needed)
                             : "pack the text with the tokenizer of the model");
  }
  if (own_words && of_data.tokenizer == data::kByteTokenizer && shape_.vocabulary != needed) {
    return Status(Code::kUsage,
                  fmt::format("the data are bytes, and the model in '{}' knows {} tokens of another tokenizer",
                              settings_.model, shape_.vocabulary),
                  "pack the text with the tokenizer of the model (docs/formats/tokens.md); where it was trained on "
                  "bytes all the same, say so by recipe.vocabulary");
  }
  return Status::Ok();
}

}  // namespace lockstep::recipes
