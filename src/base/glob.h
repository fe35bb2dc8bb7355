// Shell-like patterns. Pure, any thread.
#pragma once

#include <string_view>

namespace lockstep {

// '*' stands for any text, '?' for one character; the pattern must cover the whole name. Time: pattern times name.
bool GlobMatches(std::string_view pattern, std::string_view name);

}  // namespace lockstep
