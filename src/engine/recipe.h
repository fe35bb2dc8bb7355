// A recipe defines what is trained: the model, the loss of a batch, and the validation scores; the engine does the rest
// (ranks, precision, accumulation, optimizer, checkpoints, metrics). docs/write-a-recipe.md shows one in full.
//
// The engine calls it on the training thread of every rank alike. Loss and Validate must not call collectives, read
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
#include "data/mixed_source.h"
#include "data/sampler.h"
#include "data/source.h"
#include "engine/config.h"
#include "engine/ranks.h"
#include "engine/units.h"
#include "plan/workload.h"
#include "track/sheet.h"

namespace lockstep::cache {
struct BuildOptions;
}  // namespace lockstep::cache

namespace lockstep::engine {

// Samples as tensors on the rank's device, one per field of the source: [count, shape...].
struct TensorBatch {
  std::map<std::string, at::Tensor> fields;
  std::vector<data::SampleId> ids;
  std::vector<uint64_t> lanes;  // where each sample stands in the global batch: 0 .. train.batch - 1
  // Fields of at most kSmallField bytes a sample, on the host as well: reading them does not wait for a GPU.
  std::map<std::string, at::Tensor> host;
  static constexpr size_t kSmallField = 64;
  const at::Tensor& operator[](const std::string& name) const { return fields.at(name); }
  int64_t count() const { return static_cast<int64_t>(ids.size()); }
};

// The mean loss of a batch and the weight of that mean: usually the number of samples. Means of unequal batches add up
// to the mean over all, on any number of ranks and passes. A pass that is replayed as a CUDA graph keeps the weight it
// was captured with: one that depends on more than the shape of a batch is said by Recipe::Weight.
struct Loss {
  at::Tensor mean;
  double weight = 0;
  std::vector<at::Tensor> parts;  // further means to show, as Recipe::Parts names them
};

// Which backward pass of which step a batch is for.
struct Pass {
  uint64_t step = 0;   // optimizer steps done before this one
  uint64_t index = 0;  // of this rank's passes in the step
  uint64_t count = 1;  // passes of the step
  uint64_t since = 0;  // steps done since the schedule began: in a run of several phases less than `step`
};

// A second model that learns in the same step, before the main one: a discriminator. The engine flattens its
// parameters, sums its gradients over ranks and passes, and updates it with an optimizer and (fp16) a loss scale of its
// own, all saved in checkpoints.
struct Discriminator {
  std::string name;  // prefix of its tensors in checkpoints
  torch::nn::Module* module = nullptr;
  OptimizerConfig optimizer;
};

// A measure of a batch: the sum over its samples. Sums of all ranks are added, then divided by all samples.
struct Score {
  std::string name;  // "psnr"
  double sum = 0;
};

struct Sources {
  std::shared_ptr<const data::Source> train;
  std::shared_ptr<const data::Source> validation;  // may be null
  // Where `train` is several sets, one after the other: how they are mixed. Null: one set.
  std::shared_ptr<const data::Mixture> mixture = nullptr;
  // All samples that the two were taken from; null where that is `train` or several sets.
  std::shared_ptr<const data::Source> whole = nullptr;
};

// State beyond the model and its optimizer (a discriminator, a replay buffer): tensors by name and small values.
struct RecipeState {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  nlohmann::json values = nlohmann::json::object();
};

// Training and validation samples of one source, as data.validation says; videos are never divided.
Result<Sources> HoldOut(std::shared_ptr<const data::Source> all, const Config& config);

// Several sets as one, with the weights that `data.mix` gives them in training. Validation has the samples of all;
// where data.validation.samples is less, the first ones of each, as many of one as of another. Both are MixedSources.
Result<Sources> Mix(const std::vector<Sources>& sets, const std::vector<double>& weights, const Config& config);

// What `lockstep plan` and the memory check know of a recipe beside the parameters of its model.
struct PlanFacts {
  plan::Sample sample;             // empty: what a pass takes is not planned
  bool drawn_in_parts = false;     // UndrawnParts would be true
  std::vector<std::string> notes;  // what is not counted
};

class Recipe {
 public:
  virtual ~Recipe() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;  // one line

  // What this recipe prefers where the user says nothing. Before the configuration is read.
  virtual void Defaults(Config* /*config*/) {}
  // Keys of the section `recipe`.
  virtual void Declare(ConfigReader& /*reader*/) {}
  // Keys of the section `data` beside those that all data have: which samples, in which form.
  virtual void DeclareData(ConfigReader& /*reader*/, DataConfig* /*data*/) {}
  // Rules between sections, and what follows from them. After the configuration is read.
  virtual Status Check(Config* /*config*/) { return Status::Ok(); }
  // The smallest version of itself that still uses every part, for a dry run on a CPU.
  virtual void Shrink(Config* /*config*/) {}

  // Builds the model on the CPU, weights drawn from `seed`. `config` outlives the recipe.
  virtual Status Build(const Config& config, uint64_t seed) = 0;
  virtual torch::nn::Module& model() = 0;
  // Parameters by parts, so that no rank ever holds a whole model that is sharded. UndrawnParts is called before Build;
  // true: Build leaves parameters without memory of their own (their shapes over one element), and DrawPart gives
  // elements [begin, begin + out.numel()) of one, on the CPU, with the bits that Build would have given them.
  virtual bool UndrawnParts() { return false; }
  virtual Status DrawPart(const std::string& /*name*/, int64_t /*begin*/, const at::Tensor& /*out*/) {
    return Status(Code::kInternal, "the recipe draws no parts");
  }
  // Upstream weights by their names, before training (checkpoint.weights).
  virtual Status LoadWeights(const std::vector<std::pair<std::string, at::Tensor>>& weights,
                             const std::string& file) = 0;
  // What identifies the model, kept in checkpoints: a checkpoint of another model is refused.
  virtual nlohmann::json Identity() const { return nlohmann::json::object(); }

  // The units of the model (units.h), after Build. Without any, train.recompute is refused.
  virtual std::vector<Unit> Units() { return {}; }
  // After Build.
  virtual PlanFacts Plan() const { return {.notes = {"activations: the recipe does not say what a sample takes"}}; }
  // Whether Open must come before Build for the model to have its shape (a vocabulary).
  virtual bool ModelNeedsData() const { return false; }
  // Every forward of a unit goes through `runner` from now on.
  virtual void RunUnits(UnitRunner /*runner*/) {}

  // Who else trains, for collectives inside a loss (statistics over ranks). Before Open; the object outlives the
  // recipe.
  virtual void Join(Ranks* /*ranks*/) {}
  // After the model is on its device and before the first step: what else must be there (a teacher, a buffer).
  virtual Status Start(at::Device /*device*/) { return Status::Ok(); }

  // Main rank only, before Open: what one rank looks up for all (a long list of files), as text for UseIndex.
  virtual Result<std::string> IndexData() { return std::string(); }
  virtual void UseIndex(std::shared_ptr<const std::string> /*index*/) {}
  // The samples. HoldOut takes those for validation off.
  virtual Result<Sources> Open(const Config& config) = 0;

  // Fills the feature cache that the configuration names with what the recipe's frozen encoder gives for all samples
  // (`lockstep cache build`). Instead of Build and Open; no other rank is known.
  virtual Status BuildCache(const Config& /*config*/, at::Device /*device*/, const cache::BuildOptions& /*options*/) {
    return Status(Code::kUsage, "the recipe " + name() + " has no frozen encoder whose features could be cached");
  }

  // Before a pass: what needs the host or must stay outside a captured graph (random draws, a frozen teacher). Adds
  // fields to the batch, always the same names, types and shapes per sample. Random numbers must be functions of
  // (seed, step, lane), so that they do not depend on the number of ranks.
  virtual Status Prepare(const Pass& /*pass*/, TensorBatch* /*batch*/) { return Status::Ok(); }
  // A second model trained in each step before the main one, with this loss. All passes of the discriminator come
  // first, then its update, then all passes of ComputeLoss, with the same batches. When the step has one pass, tensors
  // made here may be kept for ComputeLoss; with more they must not be.
  virtual std::optional<Discriminator> discriminator() { return std::nullopt; }
  virtual Loss ComputeDiscriminatorLoss(const Pass& /*pass*/, const TensorBatch& /*batch*/) { return {}; }

  virtual Loss ComputeLoss(const TensorBatch& batch) = 0;
  // The weight of a batch where its content decides (labelled tokens), known on the host; it stands instead of
  // Loss::weight wherever weights are added up. Loss::mean x Loss::weight must still be the sum, so that the quotient
  // of both sums is the mean. Called for training and validation batches, outside captured graphs.
  virtual std::optional<double> Weight(const TensorBatch& /*batch*/) { return std::nullopt; }
  // Names of Loss::parts, always the same.
  virtual std::vector<std::string> Parts() const { return {}; }
  // Validation runs without gradients, the model in evaluation mode. Prepare is not called there; this is.
  virtual Status PrepareValidation(TensorBatch* /*batch*/) { return Status::Ok(); }
  virtual Loss ComputeValidationLoss(const TensorBatch& batch) { return ComputeLoss(batch); }
  virtual std::vector<Score> Validate(const TensorBatch& /*batch*/) { return {}; }
  // Scores that follow from the means over all samples (perplexity from the loss).
  virtual std::vector<std::pair<std::string, double>> Derive(
      const std::vector<std::pair<std::string, double>>& /*means*/) {
    return {};
  }
  // Whether every validation sample is worth a line of its own (a clip): then validations go by single samples.
  virtual bool ScoresEachSample() const { return false; }
  // Names of what Validate measures and Derive adds, "loss" left out.
  virtual std::vector<std::string> Scores() const { return {}; }
  // The score that decides which checkpoint is best, and whether more is better.
  virtual std::pair<std::string, bool> Best() const { return {"loss", false}; }
  // Metrics of this rank's own, in every step that is written: {"cache/hits", 12}. Named "rank/<name>".
  virtual std::vector<std::pair<std::string, double>> Metrics() { return {}; }
  // What a sample consists of, for the metric <name>_per_second: {"tokens", 1024}. Empty: samples_per_second is enough.
  virtual std::pair<std::string, double> PerSample() const { return {}; }
  // Something to look at: adds a row for each sample of a (small) validation batch, in their order, and names the
  // columns. Title, subtitle and rows without a title are named by the engine. Main rank only.
  virtual void Show(const TensorBatch& /*batch*/, track::Sheet* /*sheet*/) {}

  // All ranks together, before they call Save: brings what lies on several ranks to rank 0. All ranks name the same
  // tensors; those of rank 0 are saved, every rank gets them when they are restored.
  virtual Status Gather() { return Status::Ok(); }
  virtual RecipeState Save() { return {}; }
  virtual Status Restore(const RecipeState& /*state*/) { return Status::Ok(); }
};

}  // namespace lockstep::engine
