// A recipe with its configuration read: file, --set, command line, in that order. Shared by the commands of
// `lockstep-train`. Plain values.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/config.h"
#include "engine/recipe.h"

namespace lockstep::cli {

struct Settings {
  engine::Config config;
  std::unique_ptr<engine::Recipe> recipe;
  std::string effective;       // YAML
  std::string effective_help;  // the same with every key explained
  std::string digest;
};

Result<Settings> ReadSettings(const std::string& recipe, const std::string& config_file,
                              const std::vector<std::string>& overrides, bool smoke, uint64_t smoke_steps);

}  // namespace lockstep::cli
