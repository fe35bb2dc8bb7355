// A placement for people, for programs and for a shell. Pure functions, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "place/placement.h"

namespace lockstep::place {

// platform, level, starts, nested, nnodes, node_rank, nproc_per_node, world_size, rank, local_rank, master_addr,
// master_port, evidence[] (source, says, weight), warnings[], error. null where unknown.
nlohmann::ordered_json ToJson(const Placement& placement);

// A short aligned table, then evidence and warnings.
std::string ToText(const Placement& placement, bool colour);

// Lines for eval in a shell: `export NAME=value` for what is known, `unset NAME` for what is not, so that no value of
// another launcher survives. Only for a placement without error.
std::string ToShell(const Placement& placement);

}  // namespace lockstep::place
