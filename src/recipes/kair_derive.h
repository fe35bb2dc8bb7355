// The part of translating an option file that needs more than one key: schedules, parameter groups, phases, the form of
// the spikes. Called by TranslateKair after the table was applied. Any thread.
#pragma once

#include "base/config_tree.h"
#include "recipes/kair_options.h"
#include "recipes/kair_phases.h"

namespace lockstep::recipes {

// Adds settings, derived values and, where keys contradict each other, refusals.
// `phase`: which of two the options are of.
void DeriveKair(const ConfigNode& options, const KairPhase& phase, KairTranslation* made);

}  // namespace lockstep::recipes
