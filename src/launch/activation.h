// What --venv, --conda and --module-load change in a worker's environment, found without starting conda: the variables
// that activation would set, its activate.d scripts run once by a shell, environment modules loaded once by bash. The
// result is a set of changes to apply, checked before anything starts. Main thread only (it may start a shell).
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/worker_env.h"
#include "place/placement.h"

namespace lockstep::launch {

struct Activation {
  EnvChanges env;
  std::string prefix;       // root of the environment; its interpreter is <prefix>/bin/python
  std::string description;  // "conda environment torch (/opt/conda/envs/torch)"
};

inline constexpr std::chrono::seconds kShellLimit{20};

Result<Activation> ActivateVenv(const std::string& path, const Environment& env);

// A name, looked up where conda keeps environments, or a path.
Result<Activation> ActivateConda(const std::string& name_or_path, const Environment& env,
                                 std::chrono::milliseconds limit = kShellLimit);

Result<Activation> LoadModules(const std::vector<std::string>& names, const Environment& env,
                               std::chrono::milliseconds limit = kShellLimit);

// `env` with the changes applied.
Environment Apply(Environment env, const EnvChanges& changes);

}  // namespace lockstep::launch
