#include "models/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>

namespace lockstep::models {
namespace {

constexpr size_t kNamesShown = 8;

}  // namespace

void AppendNames(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<std::string> shown(names.begin(), names.begin() + std::min(names.size(), kNamesShown));
  text += fmt::format("{}{} {}: {}", text.empty() ? "" : "; ", names.size(), what, fmt::join(shown, ", "));
  if (names.size() > shown.size()) text += fmt::format(" and {} more", names.size() - shown.size());
}

NamedTensors StateDict(const torch::nn::Module& module) {
  NamedTensors all;
  for (const auto& item : module.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

Status CheckFinite(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.is_floating_point() || at::isfinite(tensor).all().item<bool>()) return Status::Ok();
  return Status(Code::kUsage, fmt::format("{} has values that are not finite", name),
                "the training that wrote it diverged: take an earlier checkpoint");
}

Status LoadWeights(torch::nn::Module& module, const NamedTensors& weights, const LoadRules& rules) {
  std::map<std::string, at::Tensor> given;
  std::vector<std::string> missing, unexpected, twice, unfit;
  for (const auto& [name, tensor] : weights) {
    if (!given.emplace(name, tensor).second) twice.push_back(name);
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // all checked before the first is made
  for (const auto& [name, own] : StateDict(module)) {
    auto found = given.find(name);
    if (found == given.end()) {
      missing.push_back(name);
      continue;
    }
    at::Tensor tensor = found->second;
    given.erase(found);
    if (tensor.sizes() != own.sizes() && rules.fit) tensor = rules.fit(name, tensor, own.sizes()).value_or(tensor);
    if (tensor.sizes() != own.sizes()) {
      unfit.push_back(fmt::format("{} is [{}], expected [{}]", name, fmt::join(tensor.sizes(), ", "),
                                  fmt::join(own.sizes(), ", ")));
    } else if (tensor.is_floating_point() != own.is_floating_point()) {
      unfit.push_back(
          fmt::format("{} holds {}, expected {}", name, toString(tensor.scalar_type()), toString(own.scalar_type())));
    } else {
      copies.emplace_back(own, tensor);
    }
  }
  for (const auto& [name, tensor] : given) unexpected.push_back(name);

  std::string problems;
  AppendNames(problems, "missing", missing);
  AppendNames(problems, "unexpected", unexpected);
  AppendNames(problems, "given twice", twice);
  AppendNames(problems, "of another shape or type", unfit);
  if (!problems.empty()) {
    return Status(Code::kUsage, "the weights do not fit the model: " + problems,
                  rules.advise ? rules.advise(weights) : "give a file that was saved from this model");
  }
  torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : weights) LOCKSTEP_RETURN_IF_ERROR(CheckFinite(name, tensor));
  for (auto& [own, tensor] : copies) own.copy_(tensor);
  return Status::Ok();
}

}  // namespace lockstep::models
