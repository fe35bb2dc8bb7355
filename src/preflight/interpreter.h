// Asks the job's interpreter who it is and where it would take PyTorch from, without importing PyTorch: one short run
// of `python -c`. Start and Answer on the main thread (children are tied to it); other work may go on in between.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "preflight/check.h"

namespace lockstep::preflight {

class InterpreterQuestion {
 public:
  // `env` is complete, "K=V". Modules are looked for beside the program, or without one in `workdir`.
  InterpreterQuestion(const std::string& interpreter, const std::vector<std::string>& env, const std::string& workdir,
                      const std::string& program_folder = "");
  ~InterpreterQuestion();
  InterpreterQuestion(const InterpreterQuestion&) = delete;
  InterpreterQuestion& operator=(const InterpreterQuestion&) = delete;

  Python Answer(TimePoint deadline);

 private:
  Python python_;
  Process process_;
  UniqueFd output_;
};

// `__version__` and `cuda` of a torch/version.py.
void ReadTorchVersion(const std::string& text, Python* python);

}  // namespace lockstep::preflight
