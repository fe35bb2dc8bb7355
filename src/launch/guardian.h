// Two processes, so that no single kill -9 leaves orphans. The one the user started becomes the guardian: it forwards
// signals to its child, the launcher proper, and does nothing else. Both are subreapers. If the launcher dies, its
// ranks and all they ever forked become the guardian's children, and it ends them; if the guardian dies, the launcher
// sees its end of a pipe close and stops the job.
#pragma once

#include <chrono>
#include <functional>

#include "base/fd.h"

namespace lockstep::launch {

// Calls `launcher` in a child process, with the read end of the pipe that closes when the guardian dies, and returns
// its exit code in the guardian. Call before any thread exists. Signals are blocked in both when `launcher` runs.
int RunGuarded(std::chrono::milliseconds grace, const std::function<int(UniqueFd guardian_alive)>& launcher);

}  // namespace lockstep::launch
