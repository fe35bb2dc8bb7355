// Which CPUs each rank of a node runs on (--bind, --numa-binding), and how many threads it should use. PlanBinding is a
// pure function of a CPU topology, which ReadTopology takes from /sys or, in tests, from a copy of it. The supervisor
// plans once per attempt and applies the list in the child before exec. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "launch/options.h"

namespace lockstep::launch {

using CpuSet = std::vector<int>;  // sorted

struct Cpu {
  int id = 0;
  int core = 0;     // the lowest CPU of its physical core
  int node = 0;     // NUMA
  int package = 0;  // socket
  int cache = 0;    // the lowest CPU that shares its last-level cache
};

struct Topology {
  std::vector<Cpu> cpus;       // the allowed ones, by id
  std::vector<int> gpu_nodes;  // NUMA node of each visible GPU by local rank; -1 where the machine does not say
};

// `sys` is "/sys"; `allowed` restricts to what this process may use (its affinity mask); `gpu_pci` are PCI bus ids of
// the visible GPUs in order ("0000:3b:00.0").
Result<Topology> ReadTopology(const std::string& sys, const CpuSet& allowed, const std::vector<std::string>& gpu_pci);

// CPUs this process may run on.
CpuSet AllowedCpus();

// "0-3,8,10-11" both ways.
Result<CpuSet> ParseCpuList(const std::string& text);
std::string FormatCpuList(const CpuSet& cpus);

struct RankBinding {
  CpuSet cpus;      // empty: not bound
  int threads = 1;  // physical cores of the set, shared with the other ranks bound to it
  std::string why;  // "NUMA node 1 of GPU 4"
};

// One entry per local rank. Rank r uses GPU r; ranks without a GPU are spread over NUMA nodes in equal blocks. Fails
// when a rank would be left without a CPU of its own.
Result<std::vector<RankBinding>> PlanBinding(Bind bind, const Topology& topology, int local_world_size);

}  // namespace lockstep::launch
