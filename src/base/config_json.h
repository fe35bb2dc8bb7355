// A configuration tree as JSON: what has quotes is a string, the rest what it looks like. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/config_tree.h"

namespace lockstep {

nlohmann::ordered_json ToJson(const ConfigNode& node);

}  // namespace lockstep
