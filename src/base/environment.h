// Environment variables as a value: read once, handed to functions that decide, so that they stay pure.
#pragma once

#include <map>
#include <string>

namespace lockstep {

using Environment = std::map<std::string, std::string>;

// That of this process. Main thread, before others change it.
Environment CurrentEnvironment();

// The value of a variable, "" where it is not set.
std::string ValueOf(const Environment& env, const std::string& name);

}  // namespace lockstep
