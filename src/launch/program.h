// The command a rank executes, resolved and checked before anything starts: which interpreter, in which environment, is
// the script there and readable. Called once per launch on the main thread (an environment may need a shell to be
// asked).
//
//   Result<Program> program = ResolveProgram(options, env);
//   if (!program.ok()) return program.status();
//   Say("running {}", program->description);   // then exec program->argv with program->env applied
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "launch/worker_env.h"
#include "place/placement.h"

namespace lockstep::launch {

struct Program {
  std::vector<std::string> argv;   // the whole command with the program's arguments; argv[0] is a path
  EnvChanges env;                  // of --venv, --conda, --module-load
  std::string workdir;             // absolute; empty: unchanged
  std::string interpreter;         // empty when the program is started directly
  std::string description;         // one line: what runs, how it was found and why so
  std::vector<std::string> notes;  // what the user might not expect
};

// A .py file, a module and everything not listed here runs under `python -u`. Started directly: whatever --no-python
// names; an executable that is an ELF file or begins with #! of anything but Python; a bare name that is no file here
// but is such an executable in PATH. torchrun would hand these to Python, where they can only fail.
//
// The interpreter: of --venv or --conda; else PYTHON_EXEC (as torchrun); else of the active environment (VIRTUAL_ENV,
// CONDA_PREFIX; of both the one that comes first in PATH); else python3 or python in PATH. Without a program the
// interpreter alone: what a check of the node asks for.
Result<Program> ResolveProgram(const RunOptions& options, const Environment& env);

}  // namespace lockstep::launch
