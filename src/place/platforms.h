// The platform contracts as data: how each is recognised, what one started command stands for, and which variables say
// what. One engine (resolve.cc) reads them; a new platform is a new row. Immutable tables, any thread.
#pragma once

#include <string_view>
#include <vector>

#include "place/reader.h"

namespace lockstep::place {

enum class Want {
  kSet,     // has a value
  kDigits,  // has a value made of digits
  kLike,    // has a value of this pattern
  kAbsent,
};

// One thing that must hold. A name ending in '*' is any variable of that prefix; "@host" is the machine's host name.
struct Sign {
  std::string_view name;
  Want want = Want::kSet;
  std::string_view pattern = {};
};

enum class LevelRule {
  kWorker,     // a worker of another launcher: process level, nested
  kNode,       // the platform starts one command per node
  kProcess,    // ... per process
  kLocalSize,  // one process on this node while several GPUs are visible: node level; else process level
  kSlurm,      // step by its task counts, otherwise started once for the whole allocation (slurm.cc)
  kBare,       // variables whose meaning differs between platforms (bare.cc)
};

// How the hosts of all nodes follow from the master's name.
enum class HostPattern {
  kNone,
  kMasterThenWorkers,  // x-master-0, x-worker-0, x-worker-1, ...
  kNumbered,           // the last 0 of the first label counts: x-worker-0.y, x-worker-1.y, ...
};

// A variable that is present and does not mean what its name says.
struct Trap {
  std::string_view name;
  std::string_view why;
};

struct Platform {
  std::string_view name;
  std::string_view what;                 // in words, for evidence
  std::vector<std::vector<Sign>> signs;  // recognised when every sign of one group holds
  LevelRule rule = LevelRule::kNode;
  // Variables in order of preference; the first that has a value speaks.
  Names nnodes = {}, node_rank = {}, nproc = {}, world = {}, rank = {}, local_rank = {};
  Names master_addr = {"MASTER_ADDR"}, master_port = {"MASTER_PORT"}, job_id = {};
  HostPattern hosts = HostPattern::kNone;
  std::vector<Trap> traps = {};
  bool one_node_unless_said = false;  // silence about nodes means one, not "unknown"
};

// In the order in which they are tried: workers of other launchers, operators that speak torchrun's PET_* names, MPI,
// SLURM, providers, bare variables, nothing at all. The last row has no signs and always holds.
const std::vector<Platform>& Platforms();

// Variables of platforms that have no row yet: {a name that gives it away, the platform}.
const std::vector<Trap>& UnreadPlatforms();

// Names under which people and platforms say the same thing by hand.
extern const Names kNodeCountNames;
extern const Names kNodeRankNames;
extern const Names kRanksPerNodeNames;

}  // namespace lockstep::place
