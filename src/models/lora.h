// LoRA: chosen weight matrices W [out, in] are frozen and compute W x + alpha / rank * B (A x), and only
// A [rank, in] and B [out, rank] train. Plain values, any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/decoder_config.h"

namespace lockstep::models {

// Those of `matrices` that the globs choose, in their order. A glob that matches none is an error with the nearest
// name.
Result<std::vector<std::string>> ChooseMatrices(const std::vector<std::string>& targets,
                                                const std::vector<std::string>& matrices);

struct LoraConfig {
  int64_t rank = 0;  // 0: no LoRA
  double alpha = 16;
  std::vector<std::string> targets = {"*.q_proj.weight", "*.v_proj.weight"};  // globs over names of matrices
  double dropout = 0;                                                         // of A's input, in training only

  bool on() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
  // The matrices that the globs choose in such a decoder, in its order; those of its layers can be chosen. A glob that
  // matches none is an error with the nearest name. Nothing is allocated.
  Result<std::vector<std::string>> Choose(const DecoderConfig& config) const;

  // What defines the function: {"rank": 8, "alpha": 16.0, "targets": [...]}.
  nlohmann::json ToJson() const;
  static Result<LoraConfig> FromJson(const nlohmann::json& json);
};

}  // namespace lockstep::models
