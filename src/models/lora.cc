#include "models/lora.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/glob.h"
#include "base/json.h"
#include "base/text.h"
#include "models/decoder.h"

namespace lockstep::models {
namespace {

// "model.layers.3.mlp.up_proj.weight" as people write it for all layers: "*.up_proj.weight".
std::string ForAllLayers(const std::string& matrix) {
  const size_t weight = matrix.rfind('.');
  return "*" + matrix.substr(matrix.rfind('.', weight - 1));
}

}  // namespace

Result<std::vector<std::string>> ChooseMatrices(const std::vector<std::string>& targets,
                                                const std::vector<std::string>& matrices) {
  std::set<std::string> chosen;
  for (const std::string& target : targets) {
    bool matched = false;
    for (const std::string& name : matrices) {
      if (!GlobMatches(target, name)) continue;
      matched = true;
      chosen.insert(name);
    }
    if (matched) continue;
    std::vector<std::string> candidates;
    for (const std::string& name : matrices) candidates.push_back(ForAllLayers(name));
    candidates.insert(candidates.end(), matrices.begin(), matrices.end());
    return Status(
        Code::kUsage,
        fmt::format("'{}' matches no matrix of the layers{}", Printable(target), DidYouMean(target, candidates)),
        fmt::format("names look like '{}'; '*' stands for any text", matrices.front()));
  }
  std::vector<std::string> in_order;
  for (const std::string& name : matrices) {
    if (chosen.contains(name)) in_order.push_back(name);
  }
  return in_order;
}

Result<std::vector<std::string>> LoraConfig::Choose(const DecoderConfig& config) const {
  return ChooseMatrices(targets, Decoder(config, 0, Decoder::Weights::kUnallocated).Matrices());
}

nlohmann::json LoraConfig::ToJson() const { return {{"rank", rank}, {"alpha", alpha}, {"targets", targets}}; }

Result<LoraConfig> LoraConfig::FromJson(const nlohmann::json& json) {
  LoraConfig lora;
  lora.rank = GetInt(json, "rank");
  lora.alpha = GetNumber(json, "alpha", 0);
  lora.targets.clear();
  const auto targets = json.is_object() ? json.find("targets") : json.end();
  if (targets != json.end() && targets->is_array()) {
    for (const auto& target : *targets) {
      if (target.is_string()) lora.targets.push_back(target);
    }
  }
  if (lora.rank < 1 || lora.alpha <= 0 || lora.targets.empty()) {
    return Status(Code::kUsage, fmt::format("expected rank, alpha and targets of LoRA, found {}", json.dump()));
  }
  return lora;
}

}  // namespace lockstep::models
