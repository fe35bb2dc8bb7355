// Option files that train in two phases: `two_run`, two sizes or batches ([first, second]), or a fusion adapter that
// trains alone up to fix_iter. Each phase as an option file of its own, and the settings of both as one configuration
// with the section `phases`. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config_tree.h"

namespace lockstep::recipes {

struct KairPhase {
  int number = 0;  // 1 or 2; 0: the file has one phase
  bool two_run = false;
  int64_t steps = 0;
  std::string steps_key;  // where they are said, for messages
  ConfigNode options;
};

// Whether an adapter fuses RGB and spikes: by netG.input.strategy, or by netG.fusion.enable where it does not say.
bool FusesKair(const ConfigNode& options);

// Two phases, or none for a file with one.
std::vector<KairPhase> SplitKair(const ConfigNode& options);

// What both phases have is said once, above; what differs stands in `phases`, and above as the first phase has it.
ConfigNode JoinKair(const std::vector<KairPhase>& phases, const std::vector<ConfigNode>& settings);

}  // namespace lockstep::recipes
