// The Python a job would start and the folders it imports from, found without starting it. The rules are CPython's and
// those of the distributions that move its folders. Reads only; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/environment.h"
#include "hardware/sys_tree.h"

namespace lockstep::hardware {

// PYTHON_EXEC; else of the active environment (VIRTUAL_ENV, CONDA_PREFIX; of both the one that comes first in PATH);
// else python3 or python in PATH. Empty: none.
std::string FindPython(const SysTree& tree, const Environment& env);

// A bare name looked up in PATH; a path as it is. Empty: no such executable file.
std::string FindProgram(const SysTree& tree, const Environment& env, const std::string& name);

// PYTHONPATH, site-packages, dist-packages and what .pth files add, in the order of sys.path. Only folders that exist.
std::vector<std::string> ImportFolders(const SysTree& tree, const Environment& env, const std::string& interpreter);

// VIRTUAL_ENV and CONDA_PREFIX, those that are set, the one that counts first: whose bin comes first in PATH, and of
// two that are not in PATH the virtual environment, which is usually made inside the other.
std::vector<std::string> ActiveEnvironments(const Environment& env);

// The text of "name = 'text'" or "name: Optional[str] = 'text'" at the beginning of a line of a Python file. Empty:
// none.
std::string PythonText(const std::string& file, std::string_view name);

}  // namespace lockstep::hardware
