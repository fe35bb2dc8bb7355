// What earlier attempts left in the W&B folder of a run (docs/formats/wandb.md): which fragments there are, where the
// history stands, and the end of a fragment whose attempt was killed. Private to track/ and its tests. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::track {

inline constexpr std::string_view kFragmentPrefix = "offline-run-";  // how `wandb sync` tells what was not uploaded yet

// Folders of the fragments, in the order of their attempts.
std::vector<std::string> WandbFragments(const std::string& dir);

std::string WandbFragmentFile(const std::string& folder, const std::string& id);
// The row of the step that is not complete yet; it survives a kill here and belongs to the history from then on.
std::string WandbOpenRowFile(const std::string& folder, const std::string& id);

struct WandbBefore {
  std::string id;      // of the run; empty: there is none yet
  std::string newest;  // name of the last fragment's folder
  std::optional<uint64_t> last_step;
  double runtime = 0;
};

// Ends what a killed attempt left open and removes fragments that name no run: `wandb sync` would refuse all of them.
Result<WandbBefore> TakeUpWandbRun(const std::string& dir);

}  // namespace lockstep::track
