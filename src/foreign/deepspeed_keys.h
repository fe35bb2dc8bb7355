// How the tables of keys are written, for the files that hold them. Any thread.
#pragma once

#include <string_view>
#include <vector>

#include "foreign/translation.h"

namespace lockstep::foreign {

// The rows of a table; its columns are described in deepspeed_keys.cc.
void AddKeyRows(std::string_view text, std::vector<KeyRow>* rows);
// Rows of the blocks around the training: monitors, profilers, checkpoints, and what is not here.
std::string_view DeepSpeedBlocks();

}  // namespace lockstep::foreign
