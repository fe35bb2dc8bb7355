// Which ranks see rank 0's checkpoints folder. Determined once at the start by all ranks: rank 0 writes a file with a
// random token under a name that was never looked up before, and every rank tries to read it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::record {

// Removed by RemoveLeftovers where rank 0 was killed in between.
inline constexpr std::string_view kProbePrefix = ".probe-";

// The ranks that read the token and may write into `folder`, ascending; rank 0 is always the first. `gather`: every
// rank's text, on every rank. Collective; an error is every rank's.
Result<std::vector<int>> RanksThatSee(const std::string& folder, int rank,
                                      const std::function<Result<std::vector<std::string>>(std::string_view)>& gather);

}  // namespace lockstep::record
