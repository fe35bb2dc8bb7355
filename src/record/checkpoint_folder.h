// The folder of all checkpoints of a run: the list, the newest valid one, and those that may be removed. Damaged
// checkpoints are reported and skipped, never removed here. Scanning is safe from any thread and process; Prune,
// Point and RemoveLeftovers belong to the one process that writes the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "record/storage.h"

namespace lockstep::record {

struct Candidate {
  uint64_t step = 0;
  std::string path;
  Status status;           // why it cannot be used, or ok as far as was looked
  bool temporary = false;  // left by a writer or a pruner that died
};

// Newest first; what is complete by structure and size has an ok status (checksums of tensors are not read). A missing
// folder is an empty list.
Result<std::vector<Candidate>> ScanCheckpoints(const std::string& folder);

// The newest checkpoint of which every byte was verified, or nothing. Those passed over, with the reason, go to
// `rejected` (may be null), temporaries too. `verify`: reads every byte of a checkpoint; empty: this process does.
Result<std::optional<std::string>> NewestGood(const std::string& folder, std::vector<Candidate>* rejected,
                                              const std::function<Status(const std::string& path)>& verify = {});

// The checkpoint that a user's word means: a step folder or a link to one, a folder of checkpoints, a run directory, or
// a run by its name, by a unique beginning of it, or "latest" (here the newest run that has a checkpoint). Of several
// checkpoints the newest good one. Empty: it is a file or folder without a checkpoint, or a path that is not there.
Result<std::string> FindCheckpoint(const std::string& word);

struct Keep {
  int last = 3;        // newest ones; at least one is always kept
  uint64_t every = 0;  // steps that are multiples of this are kept for good; 0: none
  bool best = true;    // the best one is kept
};

// Removes what Keep does not name: first renamed to "step-<n>.deleting", then unlinked. Removes nothing unless the
// newest checkpoint verifies, byte by byte; that reading is spared when the newest is `vouched`, the step that the
// caller has just written and synced. Returns the steps removed.
Result<std::vector<uint64_t>> Prune(const std::string& folder, const Keep& keep, std::optional<uint64_t> best_step,
                                    Storage& storage, std::optional<uint64_t> vouched = std::nullopt);

// Relative symbolic links "latest" and "best", for people and scripts; resuming never relies on them.
Status Point(const std::string& folder, const std::string& link, uint64_t step, Storage& storage);
// The path a link (or a small file that holds the name) leads to; nothing if it leads nowhere.
std::optional<std::string> ReadPointer(const std::string& folder, const std::string& link);

// Removes the temporaries of writers that died. Only for the owner of the folder, while it writes nothing.
Status RemoveLeftovers(const std::string& folder, Storage& storage);

}  // namespace lockstep::record
