// An environment written down: the lines of `env`, of `export -p` or of a .env file, or NUL-separated as in
// /proc/<pid>/environ. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace lockstep {

// NAME=value, one text each, as execve takes them.
std::vector<std::string> ToStrings(const Environment& env);

// NUL-separated NAME=value; entries without '=' are left out.
Environment ParseEnvironment(std::string_view text);

// Either form, by whether a NUL occurs. Lines: NAME=value, with `export ` or `declare -x ` before it, values plain or
// in single, double or $'...' quotes (which may span lines), '#' comments, blank lines, CRLF. A line that is none of
// these is an error with its number; the last of two equal names counts.
Result<Environment> ParseEnvFile(std::string_view text, const std::string& name);

}  // namespace lockstep
