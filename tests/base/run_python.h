// Runs a script of the tree in the Python that has torch and safetensors: the independent side of format tests. Without
// that Python a test fails, unless LOCKSTEP_ALLOW_SKIP names torch.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "paths.h"

namespace lockstep {

inline std::string PythonPath() {
  const char* given = std::getenv("LOCKSTEP_PYTHON");
  return given != nullptr ? given : SourceDir() + "/.venv/bin/python";
}

inline bool MayDoWithoutPython() {
  const char* allowed = std::getenv("LOCKSTEP_ALLOW_SKIP");
  return ::access(PythonPath().c_str(), X_OK) != 0 && allowed != nullptr && std::strstr(allowed, "torch") != nullptr;
}

struct PythonRun {
  int code = -1;
  std::string output;  // stdout and stderr
};

// arguments: a shell line after the interpreter's name; the script's path is relative to tests/.
inline PythonRun RunPython(const std::string& script, const std::string& arguments) {
  PythonRun run;
  const std::string command =
      "'" + PythonPath() + "' '" + SourceDir() + "/tests/" + script + "' " + arguments + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = ::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) run.output.append(buffer.data(), n);
  run.code = ::pclose(pipe);
  return run;
}

}  // namespace lockstep

#define LOCKSTEP_NEEDS_PYTHON() \
  if (::lockstep::MayDoWithoutPython()) GTEST_SKIP() << "no Python with torch, which LOCKSTEP_ALLOW_SKIP allows"
