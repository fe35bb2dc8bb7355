// Validation over all ranks: the held-out samples fall into fixed batches, each rank takes a contiguous run of them,
// and the scores of all batches are added up in one order on every rank. So the means are true means (no padding), and
// the same bits on any number of ranks. Collective.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/feed.h"
#include "engine/ranks.h"
#include "engine/recipe.h"
#include "engine/strategy.h"

namespace lockstep::engine {

struct ValidationResult {
  std::vector<std::pair<std::string, double>> means;  // "loss" first
  uint64_t samples = 0;
  std::vector<nlohmann::json> rows;            // {"sample": name, "psnr": ...} where the recipe scores each sample
  std::vector<data::BadSample> bad;            // of this rank
  track::Sheet sheet;                          // main rank: the first samples; without rows where nothing is shown
  Status shown;                                // not ok: why the recipe could not show them
  double Find(const std::string& name) const;  // not-a-number when absent
};

struct ValidationPlan {
  std::shared_ptr<const data::Source> source;
  uint64_t batch = 1;
  data::LoaderOptions loader;
  at::Device device = at::kCPU;
  Precision precision = Precision::kFp32;
};

// `strategy`: of the recipe's model.
Result<ValidationResult> RunValidation(const ValidationPlan& plan, Recipe& recipe, Ranks& ranks,
                                       ParallelStrategy& strategy);

}  // namespace lockstep::engine
