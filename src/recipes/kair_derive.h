// The part of translating an option file that needs more than one key: schedules, parameter groups, phases, the form of
// the spikes. Called by TranslateKair after the table was applied. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/config_tree.h"
#include "recipes/kair_options.h"

namespace lockstep::recipes {

// A value as text, for notes: "[1, 2]".
std::string KairText(const ConfigNode& node);
// Sets "train.optimizer.lr" below a map.
void SetKair(ConfigNode* root, std::string_view key, ConfigNode value);

// Adds settings, derived values and, where keys contradict each other, refusals.
void DeriveKair(const ConfigNode& options, KairTranslation* made);

}  // namespace lockstep::recipes
