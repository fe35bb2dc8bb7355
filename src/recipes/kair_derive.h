// The part of translating an option file that needs more than one key: schedules, parameter groups, phases, the form of
// the spikes. Called by TranslateKair after the table was applied. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/config_tree.h"
#include "recipes/kair_options.h"
#include "recipes/kair_phases.h"

namespace lockstep::recipes {

// A value as text, for notes: "[1, 2]".
std::string KairText(const ConfigNode& node);
// Sets "train.optimizer.lr" below a map.
void SetKair(ConfigNode* root, std::string_view key, ConfigNode value);

// Adds settings, derived values and, where keys contradict each other, refusals.
// `phase`: which of two the options are of.
void DeriveKair(const ConfigNode& options, const KairPhase& phase, KairTranslation* made);

}  // namespace lockstep::recipes
