// A recipe with its configuration read: the recipe's defaults, the file, what a number of GPUs asks for (only when it
// is asked), --set; the later wins. Shared by the commands of `lockstep-train`. Plain values.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/config.h"
#include "engine/phase.h"
#include "engine/recipe.h"
#include "foreign/deepspeed.h"
#include "recipes/kair_options.h"
#include "recipes/preset.h"
#include "recipes/registry.h"

namespace lockstep::cli {

struct Settings {
  engine::Config config;
  std::unique_ptr<engine::Recipe> recipe;
  std::string effective;       // YAML
  std::string effective_help;  // the same with every key explained
  std::string digest;
  std::vector<std::string> renamed;  // keys given by an old name, one line each
  std::optional<recipes::Preset> preset;
  std::optional<recipes::KairTranslation> options;    // what became of an option file
  std::optional<foreign::DeepSpeedReport> deepspeed;  // what became of DeepSpeed's or accelerate's
  // Of a run of several phases (the section `phases`): the settings of each, and which part of the run it is. Empty:
  // there is one, and it is these settings.
  std::vector<Settings> phases;
  engine::RunPhase phase;
};

// Where a configuration is written: one of ours, or an option file of another program (--opt); over it DeepSpeed's or
// accelerate's. Each may be empty.
struct ConfigFiles {
  std::string config, options;
  std::string deepspeed, accelerate;
  int ranks = 0;  // that share the batch, for those two and for --smoke; 0: unknown
};

// The option file as our configuration. Errors: a recipe that reads none, a file that is none. What it refuses is
// KairTranslation::Check.
Result<recipes::KairTranslation> ReadOptions(const std::string& recipe, const std::string& file);

// DeepSpeed's or accelerate's file, with `auto` resolved from the recipe's own configuration. What it refuses is
// DeepSpeedReport::Check.
Result<foreign::DeepSpeedReport> TranslateForeign(const recipes::Registry& recipes, const std::string& recipe,
                                                  const ConfigFiles& files, const std::vector<std::string>& overrides);

// train.yaml of the run that a checkpoint or run directory belongs to; "" where there is none.
std::string ConfigOfRun(const std::string& weights);

// What `config --gpus` and `train --preset` ask for.
struct PresetRequest {
  int gpus = 0;           // 0: the configuration stays as it is written
  int gpus_per_node = 0;  // 0: all, at most eight
  int cores = 0;          // of a node; 0: unknown
};

Result<Settings> ReadSettings(const recipes::Registry& recipes, const std::string& name, const ConfigFiles& files,
                              const std::vector<std::string>& overrides, bool smoke, uint64_t smoke_steps,
                              const PresetRequest& preset = {});

// `--cache POLICY` as overrides: one for each feature cache that the configuration names. Errors: it names none.
Result<std::vector<std::string>> CachePolicy(const Settings& settings, const std::string& policy);

}  // namespace lockstep::cli
