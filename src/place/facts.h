// What the rules hand to each other while one placement is resolved: what the user asked for, and what the platform
// says. Internal to this folder; plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "place/platforms.h"
#include "place/reader.h"

namespace lockstep::place {

// Flags and torchrun's PET_* variables, each with its source. They win over the platform.
struct Asked {
  std::optional<Said<int>> nnodes, node_rank, master_port;
  std::optional<Said<std::string>> nproc, master_addr, endpoint;
  std::optional<Level> level;
  std::string backend;
  bool standalone = false;
  bool nproc_by_flag = false;  // on the command line, not through PET_*
};

// What the platform says. Under process level nproc is the number of ranks on this node.
struct PlatformFacts {
  std::optional<Level> level;
  Starts starts = Starts::kPerNode;
  std::optional<Said<int>> nnodes, node_rank, nproc, world, rank, local_rank;
  std::vector<std::string> hosts;
  std::vector<int> nproc_by_node;
  std::optional<Said<std::string>> master_addr;
};

// One placement while it is resolved.
struct Resolution {
  Reader& in;
  const Machine& machine;
  const Asked& asked;
  const Platform& row;
  Placement& out;
};

// slurm.cc: step, batch body or allocation shell.
void ReadSlurm(Resolution& resolution, PlatformFacts* facts);
// The node list of the allocation, for programs that SLURM did not start itself (mpirun).
std::vector<std::string> AllocationHosts(Resolution& resolution);

// bare.cc: WORLD_SIZE and RANK that may count nodes or processes, with NNODES and NODE_RANK where given.
void ReadBare(Resolution& resolution, PlatformFacts* facts);
// WORLD_SIZE without RANK beside a known node index: the number of nodes, if that is what it must be.
std::optional<Said<int>> WorldAsNodes(Resolution& resolution);

// asked.cc: flags and PET_* with their sources.
Asked ReadAsked(Reader& in, const Flags& flags);
// "auto" | "gpu" | "cpu" | number -> count; the source says why: "--nproc-per-node gpu: 8 visible GPUs (nvml)".
std::optional<Said<int>> CountRanks(Resolution& resolution, const Said<std::string>& spec);
// "8 visible GPUs (nvml)"
std::string VisibleGpus(const Machine& machine);

// compose.cc: flags over facts, derived counts.
void Compose(Resolution& resolution, PlatformFacts facts);
// check.cc: what cannot be together, and what other names say.
void Check(Resolution& resolution, const PlatformFacts& facts);
// master.cc: where node 0 is reached.
void FindMaster(Resolution& resolution, const PlatformFacts& facts);

}  // namespace lockstep::place
