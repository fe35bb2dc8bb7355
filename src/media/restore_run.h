// The loop of `lockstep restore` on one rank: one thread reads windows ahead, the calling thread computes them, one
// stores what came out, one puts clips together. On a GPU nothing waits for the device but the thread that stores:
// copies go through pinned memory, and the next window is queued while the last one is copied and written.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "media/restore_assemble.h"
#include "media/restore_reader.h"

namespace lockstep::media {

struct RestoreUnit {
  size_t task = 0, window = 0;
};

struct RestoreLoop {
  std::vector<RestoreTask> tasks;
  std::vector<RestoreUnit> units;  // of this rank, in order of tasks and windows
  std::vector<size_t> assembled;   // tasks that this rank puts together
  RestoreTiles tiles;
  RestoreForward forward;  // of tensors on `device`
  at::Device device = at::kCPU;
  std::optional<double> noise;  // a further channel of this value
  WindowReader::Options reading;
  size_t store_threads = 1;
  AssembleOptions assembling;  // its `stop` is the loop's
  // Called by the computing thread when a window of this rank was handed over to be stored, and while it waits for
  // others.
  std::function<void()> progress;
};

struct RestoreOutcome {
  std::string written;
  std::vector<std::string> notes;
};
// Until the units are stored and the clips published. `stop` ends it early with kInterrupted.
Result<RestoreOutcome> RunRestoreLoop(const WorkFiles& files, const MediaOptions& asked, const RestoreLoop& loop,
                                      const std::atomic<bool>* stop);

}  // namespace lockstep::media
