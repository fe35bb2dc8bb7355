// The job token: proof that two launchers belong to one job. Each side sends a random nonce and proves with HMAC-SHA256
// that it knows the token; the token itself never crosses the wire, a command line or a log. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep::launch {

// 32 random hex digits.
std::string MakeNonce();

// Hex HMAC-SHA256 of the parts, each preceded by its length so that no two lists of parts collide.
std::string Proof(const std::string& token, std::initializer_list<std::string_view> parts);

// Compares in constant time.
bool SameProof(std::string_view a, std::string_view b);

// From `file` (one line; refused when others may read it), else from the variable's value; empty when neither is given.
Result<std::string> LoadToken(const std::string& file, const std::string& from_environment);

}  // namespace lockstep::launch
