// Who hosts the TCPStore in which the workers find each other: the launcher of node 0, as torchrun's agent does, or
// rank 0. A pure function; node 0 decides for the whole job.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launch/options.h"
#include "launch/program.h"
#include "place/placement.h"

namespace lockstep::launch {

// Since 2.5 a client begins with VALIDATE and PING. Older ones are not hosted, although 2.1 and later would understand.
inline constexpr std::pair<int, int> kFirstTorchForStore{2, 5};

struct StoreChoice {
  bool on = false;
  std::string because;  // in words, for --dry-run
};

// `torch` is the version the program's interpreter would import; nothing: none was found.
StoreChoice ChooseStore(const RunOptions& options, const Program& program, const Environment& env,
                        const std::optional<std::pair<int, int>>& torch);

}  // namespace lockstep::launch
