// A launch, resolved and checked: everything `lockstep run` will do on this node, as a value that can be shown before
// it is done. Environment -> Placement -> LaunchPlan -> ranks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "launch/options.h"
#include "launch/program.h"
#include "launch/store_choice.h"
#include "launch/worker_env.h"
#include "place/placement.h"

namespace lockstep::launch {

inline constexpr int kDefaultPort = 29500;

struct LaunchPlan {
  LaunchPlan(RunOptions asked, Environment environment) : options(std::move(asked)), env(std::move(environment)) {}

  const RunOptions options;  // what was asked; nothing that is resolved is written into it
  const Environment env;
  place::Placement placement;
  Program program;
  Status program_error;  // why there is no program; a launch ends there, a preflight reports it
  StoreChoice store;     // of this node; node 0's is the job's
  std::string token;
  std::string host;
  int cpus = 1;
  std::vector<std::string> gpu_pci;  // of the visible GPUs, for --bind
  std::string outer_launcher;        // under which this process runs; see place::Machine
  RankSettings settings;             // as far as they are known before the rendezvous
  nlohmann::json tuned;              // what tuning.h settled, for --dry-run; null: not asked
};

// The first rank of this node, with the numbers known before the rendezvous.
WorkerIdentity FirstRank(const LaunchPlan& plan);

// What would happen, for --dry-run: human text, or one JSON document.
std::string DescribePlan(const LaunchPlan& plan, bool json);

// What a run is named after when it is given no name: the script, the module without its packages, the recipe.
std::string NameStem(const RunOptions& options);

// config.yaml of the run directory: the settings in force, whoever set them.
std::string EffectiveConfig(const LaunchPlan& plan);

// Where the launchers hold their rendezvous: --rdzv-endpoint, else MASTER_ADDR and MASTER_PORT, one port higher on
// process level where the workers keep MASTER_PORT.
std::string LauncherHost(const LaunchPlan& plan);
int LauncherPort(const LaunchPlan& plan);

}  // namespace lockstep::launch
