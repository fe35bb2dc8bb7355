// All that makes a run continue where it was, as a checkpoint: weights, optimizer, average, loss scale, position in the
// data, best score, the recipe's discriminator and own state. Independent of the number of ranks. Describe is
// rank-local: what this rank has of it (state_tensors.h). Restore is collective: each byte is read and verified by one
// rank.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/weights.h"
#include "data/sampler.h"
#include "engine/learner.h"
#include "engine/precision.h"
#include "engine/ranks.h"
#include "engine/recipe.h"
#include "record/checkpoint.h"

namespace lockstep::engine {

// The small values.
struct Position {
  uint64_t step = 0;  // optimizer steps done
  data::SamplerState sampler;
  uint64_t samples = 0;      // trained on so far, repeats included
  uint64_t bad_samples = 0;  // unreadable ones, each counted once; of this process, not kept in a checkpoint
  uint64_t bad_steps = 0;    // in a row
  std::optional<double> best;
  uint64_t best_step = 0;
  std::string best_metric;         // whose score `best` is; empty: from a checkpoint that does not say
  uint64_t stale_validations = 0;  // since the best
  uint64_t seed = 0;
  std::string data;  // digest of the training data
};

struct TrainingState {
  Recipe* recipe = nullptr;
  Learner* learner = nullptr;
  Learner* discriminator = nullptr;  // null where the recipe has none
  Position position;
  Precision precision = Precision::kFp32;  // it is trained in
};

// A checkpoint's content, and the tensors it points into where they had to be made for it.
struct StateImage {
  record::CheckpointContent content;
  std::vector<at::Tensor> hold;
};
StateImage Describe(const TrainingState& state, const Ranks& ranks);

// Reads a checkpoint into the state. Ranks that do not see `path` get it from those that do; rank 0 must.
Status Restore(const std::string& path, TrainingState* state, Ranks* ranks);

// The same for the first step of a new phase: the weights and averages of the phase before, and, where `optimizer` says
// so, the optimizer's state. What the phase trains or averages for the first time begins where the weights are;
// parameters that the phase before did not have (LoRA) keep their initial values. One that it had and this one has not
// is an error.
Status TakeOver(const std::string& path, bool optimizer, TrainingState* state, Ranks* ranks);

// What the run of a checkpoint was trained in. Checkpoints from before version 0.2 do not say it: then the run's
// train.yaml does, and without one it was fp32.
Result<Precision> RecordedPrecision(const std::string& path);

// The weights in a checkpoint, on the CPU: the averaged ones where it has them, which `averaged` (may be null) tells.
Result<std::vector<std::pair<std::string, at::Tensor>>> CheckpointWeights(const record::CheckpointReader& reader,
                                                                          bool* averaged);

// The tensors on the CPU of a weights file, or of what record::FindCheckpoint finds by that word. `prefix`
// ("state_dict.", "params.") is taken off where all names have it.
Result<std::vector<std::pair<std::string, at::Tensor>>> ReadWeights(const std::string& path);

}  // namespace lockstep::engine
