// Parameter groups by name: rules with a glob pattern, first match wins, set learning rate, weight decay and freezing
// (permanently, or until a step). Pure: the settings of a parameter are a function of its name and the step, so a
// resumed run needs no state for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/glob.h"
#include "base/status.h"
#include "engine/flat.h"
#include "engine/optimizer.h"

namespace lockstep::engine {

struct GroupRule {
  std::string match;  // '*' any text, '?' one character; the whole name: "encoder.*", "*.bias"
  double lr_scale = 1;
  std::optional<double> weight_decay;
  bool freeze = false;
  uint64_t freeze_until = 0;  // trained from this step on (0: from the start)
};

// The rule for a name, or null.
const GroupRule* RuleFor(const std::vector<GroupRule>& rules, std::string_view name);

// Sets requires_grad of every parameter frozen for good. A pattern that matches nothing is an error with the nearest
// name. Before FlatParameters are made.
Status FreezeForGood(const std::vector<GroupRule>& rules, torch::nn::Module& module);

struct Groups {
  std::vector<GroupSettings> settings;
  std::vector<int> group_of;  // per flat parameter
};
Groups GroupParameters(const std::vector<GroupRule>& rules, double weight_decay, const FlatParameters& flat);

// Sets requires_grad as it is at `step`. True when something changed.
bool ApplyFreeze(const std::vector<GroupRule>& rules, uint64_t step, const FlatParameters& flat);

}  // namespace lockstep::engine
