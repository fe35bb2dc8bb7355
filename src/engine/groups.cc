#include "engine/groups.h"

#include <fmt/format.h>

#include "base/text.h"

namespace lockstep::engine {

const GroupRule* RuleFor(const std::vector<GroupRule>& rules, std::string_view name) {
  for (const GroupRule& rule : rules) {
    if (GlobMatches(rule.match, name)) return &rule;
  }
  return nullptr;
}

Status FreezeForGood(const std::vector<GroupRule>& rules, torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) {
    names.push_back(item.key());
    const GroupRule* rule = RuleFor(rules, item.key());
    if (rule != nullptr && rule->freeze) item.value().requires_grad_(false);
  }
  for (const GroupRule& rule : rules) {
    bool matched = false;
    for (const std::string& name : names) matched = matched || GlobMatches(rule.match, name);
    if (!matched) {
      return Status(Code::kUsage,
                    fmt::format("train.groups: '{}' matches no parameter of the model{}", Printable(rule.match),
                                DidYouMean(rule.match, names)),
                    fmt::format("names look like '{}'; '*' stands for any text", names.empty() ? "" : names.front()));
    }
  }
  return Status::Ok();
}

Groups GroupParameters(const std::vector<GroupRule>& rules, double weight_decay, const FlatParameters& flat) {
  Groups groups;
  groups.settings.push_back({1, weight_decay});
  for (const GroupRule& rule : rules)
    groups.settings.push_back({rule.lr_scale, rule.weight_decay.value_or(weight_decay)});
  for (const FlatParameter& parameter : flat.parameters()) {
    const GroupRule* rule = RuleFor(rules, parameter.name);
    groups.group_of.push_back(rule == nullptr ? 0 : static_cast<int>(rule - rules.data()) + 1);
  }
  return groups;
}

bool ApplyFreeze(const std::vector<GroupRule>& rules, uint64_t step, const FlatParameters& flat) {
  bool changed = false;
  for (const FlatParameter& parameter : flat.parameters()) {
    const GroupRule* rule = RuleFor(rules, parameter.name);
    const bool trains = rule == nullptr || step >= rule->freeze_until;
    changed = changed || parameter.tensor.requires_grad() != trains;
    at::Tensor(parameter.tensor).requires_grad_(trains);
  }
  return changed;
}

}  // namespace lockstep::engine
