// HJSON as the Python package hjson reads it, which DeepSpeed reads its configuration with: JSON, and comments (#, //,
// /* */), names without quotes, strings without quotes up to the end of their line, '''strings of several lines''',
// commas before a bracket or none at the end of a line, and no braces around the whole. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/config_tree.h"
#include "base/status.h"

namespace lockstep::foreign {

// Keys with values. Errors have file, line and column; a key that is given twice is one, as it is for DeepSpeed.
Result<ConfigNode> ReadHjson(std::string_view text, const std::string& source);

}  // namespace lockstep::foreign
