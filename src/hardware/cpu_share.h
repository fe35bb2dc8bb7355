// What a rank may take of the CPUs, where nobody said: how many threads it computes with, and that its threads sleep
// while they wait. The launcher says both for its ranks; this is for ranks of other launchers, which bind each rank to
// CPUs of its own (mpirun, srun --cpus-per-task) or let all of them run anywhere. So the ranks tell each other what
// they may use, and each counts its part. Reads /proc and /sys; pure functions otherwise. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::hardware {

struct CpuRights {
  std::string machine;    // boot id: CPU numbers of different machines have nothing in common
  std::vector<int> cpus;  // the affinity
  std::string cgroup;     // whose processes share the quota; empty: no quota
  double quota = 0;       // in CPUs
};

// `root` is "" but in tests.
CpuRights ReadCpuRights(const std::string& root = "");

// One line, for the other ranks.
std::string ToText(const CpuRights& rights);
Result<CpuRights> CpuRightsFromText(const std::string& text);

// Threads of ranks[rank]: every CPU is shared by the ranks that may use it, every quota by the ranks of its cgroup;
// rounded down, at least 1.
int FairThreads(const std::vector<CpuRights>& ranks, size_t rank);

// OpenMP's threads spin for milliseconds before they sleep, unless the environment says otherwise when the runtime is
// loaded. Sets OMP_WAIT_POLICY=PASSIVE in this process's environment; false when the user decided (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT or KMP_BLOCKTIME is set). What runs on afterwards has it from its start: a child, or this program
// once it is executed again. Before other threads exist.
bool LetWaitingThreadsSleep();

}  // namespace lockstep::hardware
