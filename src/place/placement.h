// Who am I: the placement of this process in a job, resolved from the environment, files and flags as a pure function
// with evidence. Nothing here starts, connects or prints; every decision is in `evidence` with its source.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"

namespace lockstep::place {

enum class Level { kNode, kProcess };                // what one started command stands for
enum class Starts { kPerNode, kPerProcess, kOnce };  // how often the platform started the command

// What the user said on the command line (or through PET_*); it wins over every other source.
struct Flags {
  std::optional<int> nnodes;
  std::optional<int> node_rank;
  std::optional<std::string> nproc_per_node;  // a number, or auto | gpu | cpu
  std::optional<Level> level;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::string rdzv_backend;   // "", static, c10d, ...
  std::string rdzv_endpoint;  // host[:port]
  bool standalone = false;
};

// What the machine is; injected so that Resolve stays pure (see machine.h for the real one).
struct Machine {
  int gpus = 0;
  std::string gpus_source;           // "nvml", "/proc/driver/nvidia", "--assume-gpus", ...
  std::vector<std::string> gpu_pci;  // bus ids of the visible ones, "" where unknown
  int cpus = 1;
  std::string host;
  // Ranks seen in the environment of other processes that run our executable in our cgroup (section "bare" variables).
  std::vector<int> sibling_ranks;
  // The launcher this process runs under, for nested launches: "torchrun (pid 123)"; empty when unknown.
  std::string outer_launcher;
  // Files a contract may read (absolute path -> content), for example a Volcano host list.
  std::map<std::string, std::string> files;
};

struct Evidence {
  std::string source;  // variable, file or flag with its value: "SLURM_STEP_TASKS_PER_NODE=2(x3),1"
  std::string says;    // what follows from it, in words
  std::string weight;  // "decides", "supports", "contradicts", "ignored"
};

struct Placement {
  std::string platform;  // row of the platform table: "local", "slurm-step", "pytorchjob-v1", ...
  std::optional<Level> level;
  Starts starts = Starts::kPerNode;
  bool nested = false;  // already a worker of another launcher
  std::optional<int> nnodes, node_rank, nproc_per_node, world_size, rank, local_rank, local_world_size;
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  std::string nproc_source;           // why nproc_per_node is what it is, in words: "8 visible GPUs (nvml)"
  bool nproc_explicit = false;        // said by a flag or the platform, not detected
  bool master_port_explicit = false;  // said by a flag or the platform, not derived or defaulted
  std::string job_id;                 // the platform's name of this job; empty when it has none
  std::vector<std::string> hosts;     // host of each node, by node rank, where the platform tells
  std::vector<int> nproc_by_node;     // per-node counts where the platform tells and they may differ
  std::vector<Evidence> evidence;
  std::vector<std::string> warnings;
  Status error;  // a contradiction or impossibility; the other fields hold what is known
};

Placement Resolve(const Environment& env, const Flags& flags, const Machine& machine);

const char* Name(Level level);    // "node" | "process"
const char* Name(Starts starts);  // "per-node" | "per-process" | "once"

}  // namespace lockstep::place
