// SLURM's compressed lists, expanded natively: `scontrol` is often missing inside containers, and a launcher that falls
// back to localhost then splits the job silently. Pure functions, any thread.
//
//   ExpandNodeList("r[1-2]n[08-10],login")  -> r1n08 r1n09 r1n10 r2n08 r2n09 r2n10 login
//   ExpandTaskCounts("2(x3),1")             -> 2 2 2 1
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep::place {

// More hosts than any cluster has: a longer list is a corrupt one, and would only eat memory.
inline constexpr size_t kMaxListedNodes = 65536;

Result<std::vector<std::string>> ExpandNodeList(std::string_view list);
Result<std::vector<int>> ExpandTaskCounts(std::string_view list);

}  // namespace lockstep::place
