// The Python stacks of a running CPython (3.8 to 3.14), read out of its memory without stopping it and without any tool
// installed. From 3.13 on the interpreter publishes the layout of its own structures; before that the layouts below,
// which are fixed within a minor version, are used. What does not look like a stack is not returned. Any thread.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/status.h"
#include "hang/stacks.h"

namespace lockstep::hang {

// Threads with Python frames; an error when the process is no CPython, of an unknown version or may not be read.
Result<std::vector<ThreadStack>> ReadPythonStacks(pid_t pid);

// Whether the process maps a CPython at all.
bool IsPython(pid_t pid);

}  // namespace lockstep::hang
