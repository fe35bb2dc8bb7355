// One configuration for any number of GPUs: which values follow from the number of ranks, by which rule, and why. The
// configuration it starts from is written for eight GPUs. docs/presets.md explains the rule. Pure functions, any
// thread; equal on all ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/config.h"

namespace lockstep::recipes {

struct PresetLine {
  std::string key;       // "train.batch"
  std::string from, to;  // as written in the configuration
  std::string why;
};

struct Preset {
  int gpus = 1;
  std::vector<PresetLine> lines;  // every key the rule looks at, changed or not
  uint64_t batch = 0, micro = 0, passes = 0;
  std::string batch_text;  // "5 samples x 48 ranks x 1 pass = 240"
  // "train.batch=240" for every line, changed or not.
  std::vector<std::string> Assignments() const;
  // For people: what, from, to, why; every line begins with `prefix`. `origin` names the base.
  std::string Table(const std::string& prefix, const std::string& origin) const;
};

struct PresetOptions {
  int gpus = 1;
  int gpus_per_node = 0;  // 0: all, at most eight
  int cores = 0;          // of a node, for the loader's threads; 0: unknown, they stay
  // Keys the user has set on the command line: they stay, and the others follow from them.
  std::function<bool(const std::string& key)> pinned = [](const std::string&) { return false; };
};

// An error where nothing fits, with what would.
Result<Preset> DerivePreset(const engine::Config& base, const PresetOptions& options);

}  // namespace lockstep::recipes
