// Trained weights of VRT measured on clips, as validation does it: the same windows, tiles and scores, clip by clip.
// One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/precision.h"
#include "recipes/vrt.h"

namespace lockstep::recipes {

struct VrtClip {
  std::string name;
  int64_t frames = 0, height = 0, width = 0;           // of the target
  std::vector<std::pair<std::string, double>> scores;  // as Recipe::Scores names them
  double Score(const std::string& name) const;         // not-a-number when absent
};

struct VrtEvaluation {
  std::vector<VrtClip> clips;
  std::vector<std::pair<std::string, std::string>> left_out;  // unreadable clips, and why
  track::Sheet sheet;                                         // of the worst by PSNR; empty unless asked for
  int64_t frames() const;
  double Mean(const std::string& name) const;  // over clips, as KAIR has it
};

// Weights of a file or checkpoint into a built recipe. A file without the adapter that the recipe has is an error.
Status LoadForEvaluation(VrtRecipe& recipe, const std::string& weights);

// The recipe's model is on `device`. `worst`: how many clips the sheet shows; 0: none. `done` is told after each clip.
Result<VrtEvaluation> EvaluateVrt(VrtRecipe& recipe, std::shared_ptr<const data::Source> clips, at::Device device,
                                  engine::Precision precision, size_t worst, const std::function<void(uint64_t)>& done);

}  // namespace lockstep::recipes
