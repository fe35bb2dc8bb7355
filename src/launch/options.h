// Everything `lockstep run` was asked to do: parsed and checked, not resolved against the machine. A plain value,
// filled by cli/run_flags.cc and const from then on. What follows from it on this machine is in LaunchPlan (plan.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "logs/log_rotation.h"
#include "place/placement.h"

namespace lockstep::launch {

// A set of streams per local rank, as torchrun's --tee/--redirects write it: "3" (all ranks) or "0:1,1:3". Bit 1 is
// stdout, bit 2 is stderr.
struct StreamSet {
  int all = 0;
  std::map<int, int> by_local_rank;
  int For(int local_rank) const {
    auto it = by_local_rank.find(local_rank);
    return it == by_local_rank.end() ? all : it->second;
  }
};

// kNuma: all CPUs of the NUMA node of the rank's GPU; kCores: a share of them for this rank alone; kSocket: all NUMA
// nodes of that socket; kComplex: one group of cores that share a last-level cache. See worker_binding.h.
enum class Bind { kNone, kNuma, kCores, kSocket, kComplex };

// Which ranks the console shows. kDefault leaves the choice to torchrun's --tee, --redirects and --local-ranks-filter.
struct ConsoleRanks {
  enum class Kind { kDefault, kAll, kNone, kListed } kind = Kind::kDefault;
  std::vector<int> ranks;  // global ranks, sorted; kListed only
};

// --stall-timeout: off; auto (learns the limit, warns, never stops); a duration (stops the job). See stall.h.
struct StallLimit {
  enum class Mode { kOff, kWarn, kStop } mode = Mode::kWarn;
  std::chrono::milliseconds after{0};  // kStop
};

// --agent-store: whether node 0's launcher hosts the TCPStore of the workers. See store_choice.h.
enum class AgentStore { kAuto, kOn, kOff };

// What to do with the settings derived from the machine (tuning.h).
enum class Tune { kOff, kReport, kApply };

struct RunOptions {
  place::Flags place;

  // torchrun's
  std::string rdzv_id;
  std::map<std::string, std::string> rdzv_conf;
  int max_restarts = 0;
  std::string role = "default";
  bool module = false;                                 // -m
  bool no_python = false;                              // --no-python
  bool run_path = false;                               // --run-path
  std::string log_dir;                                 // root of run directories; empty: ./runs
  StreamSet redirects;                                 // streams kept off the console
  std::optional<StreamSet> tee;                        // streams shown on the console although redirected
  std::optional<std::vector<int>> local_ranks_filter;  // local ranks shown on the console
  std::string local_addr;                              // address this node advertises
  std::vector<int> signals;                            // --signals-to-handle; empty: all that can be forwarded
  bool virtual_local_rank = false;

  // ours
  std::string gpus;  // list for CUDA_VISIBLE_DEVICES: "0,1" or UUIDs; empty: untouched
  Bind bind = Bind::kNone;
  std::string conda, venv;
  std::vector<std::string> modules;
  std::vector<std::pair<std::string, std::string>> env;
  std::string workdir;
  std::string name;
  std::chrono::milliseconds grace{15000};
  std::chrono::milliseconds node_timeout{30000};
  std::chrono::milliseconds join_timeout{600000};
  std::chrono::milliseconds backoff{1000};  // before the first restart; doubles up to 30 s
  StallLimit stall;
  std::chrono::milliseconds sample_every{1000};  // 0: no samples
  std::optional<std::pair<int, int>> port_range;
  logs::LogRotation rotation;
  AgentStore agent_store = AgentStore::kAuto;
  std::string token_file;
  bool debug = false;
  bool dry_run = false;
  bool json = false;
  bool exec = false;  // process level: replace this process by the program
  bool quiet = false;
  std::string preflight;  // "standard" or "full": a gate before the start; empty: none
  ConsoleRanks console;
  Tune tune = Tune::kApply;
  std::optional<std::pair<int, int>> profile;  // --profile: the first and the last step that is traced

  std::string program;            // script, module or executable
  std::vector<std::string> args;  // its arguments, untouched
  std::vector<std::string> argv;  // the whole command line after "run", for re-starting through srun

  // A train program of ours keeps the exit codes of the contract: 2 and 3 mean the same from it as from the launcher.
  bool train_program = false;
};

}  // namespace lockstep::launch
