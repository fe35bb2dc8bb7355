// Version managers (pyenv, asdf, mise) put stand-ins into PATH that choose the interpreter only when they run. Here the
// choice is made by their rules without running them. Reads only; any thread.
#pragma once

#include <string>

#include "base/environment.h"
#include "hardware/sys_tree.h"

namespace lockstep::hardware {

// The interpreter behind a stand-in; `python` itself when it is none, or when the choice cannot be told.
std::string BehindShim(const SysTree& tree, const Environment& env, const std::string& python);

}  // namespace lockstep::hardware
