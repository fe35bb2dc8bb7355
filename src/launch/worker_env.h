// The environment a worker is started with: torchrun's complete set, ours, and defaults that make failures readable. A
// pure function of who the worker is, the launcher's environment and the options; owned by the supervisor, any thread.
//
// Who wins, from weak to strong: the launcher's environment, changes by --venv/--conda/--module-load, --gpus and
// --debug, --env, the identity of the rank. Defaults (OMP_NUM_THREADS, Flight Recorder, ...) only fill what nobody set.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "launch/options.h"
#include "place/placement.h"

namespace lockstep::launch {

// Name -> new value, or nothing to unset it.
using EnvChanges = std::map<std::string, std::optional<std::string>>;

struct WorkerIdentity {
  int rank = 0, local_rank = 0, world_size = 1, local_world_size = 1;
  int node_rank = 0, nnodes = 1;
  std::string master_addr;
  int master_port = 0;
  bool agent_store = false;  // a launcher listens on master_port, so rank 0 does not
  int attempt = 0;           // of the run directory, counts over launches
  int restart_count = 0;     // of this launch
  std::string run_dir, run_id;
  std::string error_file;       // TORCHELASTIC_ERROR_FILE
  std::string metrics_path;     // LOCKSTEP_METRICS
  std::string log_dir_of_node;  // flight recorder and debug files go there
  std::string flight_pipe;      // stem of the pipe of the flight recorder; empty: none
  std::string node;             // identity of the node (LOCKSTEP_NODE); empty: its number
};

// What was resolved for a rank beside what the user asked for. All of it fills only what nobody set.
struct RankSettings {
  int threads = 1;  // OMP_NUM_THREADS; see worker_binding.h
  // PyTorch renamed the Flight Recorder's settings; a newer one warns about the old names, an older one knows no
  // others.
  bool old_torch_names = true;
  std::string gpus;  // CUDA_VISIBLE_DEVICES, where several launchers share a host; empty: all
  std::vector<std::pair<std::string, std::string>> tuned;  // from the hardware of the node; see tuning.h
  bool collect_nccl = false;  // NCCL's INIT and NET lines go to a file per rank beside its log
};

// The part that is the same for all ranks of a node and known before the start: the launcher's environment with what
// the user chose, without defaults, --debug and identity. Whoever asks what the ranks will see (GPUs to count, settings
// to check) asks here: run, preflight, tune and explain.
Environment RankEnvironment(const Environment& base, const EnvChanges& program, const RunOptions& options);

// The whole of it, as sorted "NAME=VALUE" strings. Fails only for what a user must change: --virtual-local-rank with
// fewer GPUs than ranks.
Result<std::vector<std::string>> WorkerEnvironment(const WorkerIdentity& who, const Environment& base,
                                                   const RunOptions& options, const EnvChanges& program,
                                                   const RankSettings& settings);

// Variables that say who a worker is; nobody but the launcher sets them.
bool IsIdentityVariable(std::string_view name);

// Why --env may not set this variable, or ok.
Status CheckUserVariable(std::string_view name);

// max(1, cpus / ranks).
int DefaultThreads(int cpus, int local_world_size);

}  // namespace lockstep::launch
