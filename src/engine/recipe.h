// A recipe: what is trained. It says which model, which loss of a batch, and how good the model is; the engine does the
// rest (ranks, precision, accumulation, optimizer, checkpoints, metrics). docs/write-a-recipe.md shows one in full.
//
// The engine calls it on the training thread of every rank alike. Loss and Validate must not talk to other ranks, read
// clocks or draw from generators of their own: torch's default generators are seeded by (seed, step, sample).
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "data/image.h"
#include "data/sampler.h"
#include "data/source.h"
#include "engine/config.h"
#include "engine/ranks.h"

namespace lockstep::engine {

// Samples as tensors on the rank's device, one per field of the source: [count, shape...].
struct TensorBatch {
  std::map<std::string, at::Tensor> fields;
  std::vector<data::SampleId> ids;
  const at::Tensor& operator[](const std::string& name) const { return fields.at(name); }
  int64_t count() const { return static_cast<int64_t>(ids.size()); }
};

// The mean loss of a batch and the weight of that mean: usually the number of samples. Means of unequal batches add up
// to the mean over all, on any number of ranks and passes.
struct Loss {
  at::Tensor mean;
  double weight = 0;
  std::vector<at::Tensor> parts;  // further means to show, as Recipe::Parts names them
};

// A measure of a batch: the sum over its samples. Sums of all ranks are added, then divided by all samples.
struct Score {
  std::string name;  // "psnr"
  double sum = 0;
};

using Picture = data::Image;

struct Sources {
  std::shared_ptr<const data::Source> train;
  std::shared_ptr<const data::Source> validation;  // may be null
};

// State beyond the model and its optimizer (a discriminator, a replay buffer): tensors by name and small values.
struct RecipeState {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  nlohmann::json values = nlohmann::json::object();
};

class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;  // one line

  // What this recipe prefers where the user says nothing. Before the configuration is read.
  virtual void Defaults(Config* /*config*/) const {}
  // Keys of the section `recipe`.
  virtual void Declare(ConfigReader& /*reader*/) {}
  // Rules between sections, and what follows from them. After the configuration is read.
  virtual Status Check(Config* /*config*/) { return Status::Ok(); }
  // The smallest version of itself that still uses every part, for a dry run on a CPU.
  virtual void Shrink(Config* /*config*/) {}

  // Builds the model on the CPU, weights drawn from `seed`. `config` outlives the recipe.
  virtual Status Build(const Config& config, uint64_t seed) = 0;
  virtual torch::nn::Module& model() = 0;
  // Upstream weights by their names, before training (checkpoint.weights).
  virtual Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights,
                             const std::string& file) = 0;
  // What identifies the model, kept in checkpoints: a checkpoint of another model is refused.
  virtual nlohmann::json Identity() const { return nlohmann::json::object(); }

  // Default: the section `data`, split by video.
  virtual Result<Sources> Open(const Config& config);

  virtual Loss ComputeLoss(const TensorBatch& batch) = 0;
  // Names of Loss::parts, always the same.
  virtual std::vector<std::string> Parts() const { return {}; }
  virtual std::vector<Score> Validate(const TensorBatch& /*batch*/) { return {}; }
  // Names of what Validate measures, "loss" left out.
  virtual std::vector<std::string> Scores() const { return {}; }
  // The score that decides which checkpoint is best, and whether more is better.
  virtual std::pair<std::string, bool> Best() const { return {"loss", false}; }
  // Something to look at, made from a validation batch by the main rank.
  virtual std::optional<Picture> Show(const TensorBatch& /*batch*/) { return std::nullopt; }

  virtual RecipeState Save() { return {}; }
  virtual Status Restore(const RecipeState& /*state*/) { return Status::Ok(); }
};

}  // namespace lockstep::engine
