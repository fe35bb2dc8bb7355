// Flags over facts: what the user asked wins, a disagreement is said, and what follows from the rest is derived with
// its reason. The checks at the end hold for every platform.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/digits.h"
#include "base/glob.h"
#include "base/text.h"
#include "place/facts.h"

namespace lockstep::place {
namespace {

// The asked value over the platform's; says which, and warns when they differ.
std::optional<int> Choose(Resolution& resolution, std::string_view what, const std::optional<Said<int>>& asked,
                          const std::optional<Said<int>>& fact) {
  if (asked) {
    resolution.in.Decides(asked->source, fmt::format("{} = {}", what, asked->value));
    if (fact && fact->value != asked->value) {
      resolution.in.Contradicts(fact->source, fmt::format("{} = {}", what, fact->value));
      resolution.in.Warn(fmt::format("{} overrides {}", asked->source, fact->source));
    }
    return asked->value;
  }
  if (!fact) return std::nullopt;
  resolution.in.Decides(fact->source, fmt::format("{} = {}", what, fact->value));
  return fact->value;
}

// A launch inside a worker would multiply the ranks. One process unchanged is fine, fanning out is not.
void RefuseFanOutInsideWorker(Resolution& resolution) {
  std::optional<Said<int>> count;
  if (resolution.asked.nproc_by_flag) count = CountRanks(resolution, *resolution.asked.nproc);
  if (!(count && count->value > 1) && !resolution.asked.standalone) {
    if (resolution.asked.nnodes && !resolution.asked.nnodes->source.starts_with("PET_"))
      resolution.in.Ignored(resolution.asked.nnodes->source, "inside a worker the outer launcher has decided");
    return;
  }
  const std::string& outer = resolution.machine.outer_launcher;
  resolution.in.Fail(
      fmt::format("a launch inside a launch: this process is {}{}, and {}", resolution.row.what,
                  outer.empty() ? "" : " of " + outer,
                  count ? fmt::format("{} asks it to start {} more", count->source, count->value)
                        : "--standalone asks it to start a job of its own"),
      "start the program directly here, or run lockstep outside of the other launcher (or unset RANK, LOCAL_RANK, "
      "WORLD_SIZE and TORCHELASTIC_RUN_ID if they are left over)");
}

// --level against what the environment says: the counts keep their numbers and change their meaning.
void ApplyLevel(Resolution& resolution, PlatformFacts* facts) {
  if (!resolution.asked.level || resolution.out.nested) return;
  const Level asked = *resolution.asked.level;
  resolution.in.Decides(fmt::format("--level={}", Name(asked)), fmt::format("one command per {}", Name(asked)));
  if (facts->starts == Starts::kOnce) {
    if (asked == Level::kProcess)
      resolution.in.Fail("--level=process in a command that SLURM started once for all nodes",
                         "start it with srun, one task per rank");
    return;
  }
  if (!facts->level || *facts->level == asked) {
    facts->level = asked;
    return;
  }
  resolution.in.Warn(fmt::format("--level={} overrides the evidence for {} level", Name(asked), Name(*facts->level)));
  facts->level = asked;
  if (asked == Level::kNode) {
    facts->nnodes = facts->world;
    facts->node_rank = facts->rank;
    facts->nproc.reset();
    facts->local_rank.reset();
    facts->nproc_by_node.clear();
    facts->hosts.clear();
  } else {
    facts->world = facts->nnodes ? facts->nnodes : Said<int>{1, "one node"};
    facts->rank = facts->node_rank ? facts->node_rank : Said<int>{0, "one node"};
    facts->local_rank = Said<int>{0, "one process per node"};
    facts->nproc = Said<int>{1, "one process per node"};
  }
}

void SetRanksPerNode(Resolution& resolution, std::optional<Said<int>> count, bool is_explicit) {
  if (!count) return;
  resolution.out.nproc_per_node = count->value;
  resolution.out.nproc_source = count->source;
  resolution.out.nproc_explicit = is_explicit;
  resolution.in.Decides(count->source,
                        fmt::format("{} rank{} on this node", count->value, count->value == 1 ? "" : "s"));
}

void NodeCounts(Resolution& resolution, PlatformFacts* facts) {
  Placement& out = resolution.out;
  Reader& in = resolution.in;
  out.nnodes = Choose(resolution, "nodes", resolution.asked.nnodes, facts->nnodes);
  if (!out.nnodes && resolution.asked.standalone) out.nnodes = 1;
  if (!out.nnodes && resolution.row.one_node_unless_said) out.nnodes = 1;
  if (!out.nnodes && !in.failed())
    in.Fail(fmt::format("{} does not say how many nodes the job has", resolution.row.what),
            "pass --nnodes (or set NNODES)");

  if (out.nnodes == 1 && resolution.asked.nnodes && !resolution.asked.node_rank && facts->node_rank &&
      facts->node_rank->value > 0) {
    in.Warn(fmt::format("{}: each node runs a job of its own, although {}", resolution.asked.nnodes->source,
                        facts->node_rank->source));
    facts->node_rank.reset();
  }
  out.node_rank = Choose(resolution, "this node", resolution.asked.node_rank, facts->node_rank);
  if (!out.node_rank && out.nnodes == 1) out.node_rank = 0;
  if (!out.node_rank && facts->starts != Starts::kOnce && out.nnodes.value_or(2) > 1) {
    if (!resolution.asked.backend.empty() && resolution.asked.backend != "static")
      in.Supports("rendezvous backend " + resolution.asked.backend,
                  "no node rank is given: assigned at the rendezvous");
    else if (!in.failed())
      in.Fail(fmt::format("{} does not say which node this is", resolution.row.what),
              GlobMatches("*-*", resolution.machine.host) &&
                      IsDigits(resolution.machine.host.substr(resolution.machine.host.rfind('-') + 1))
                  ? fmt::format("pass --node-rank (the host name {} suggests a number), or --rdzv-backend c10d",
                                resolution.machine.host)
                  : "pass --node-rank (0 on the node of --master-addr), or --rdzv-backend c10d");
  }

  const bool elsewhere = facts->starts == Starts::kOnce && !out.node_rank;
  if (resolution.asked.nproc) {
    const bool counted_there = elsewhere && !IsDigits(Trim(resolution.asked.nproc->value));
    if (counted_there)
      in.Supports(resolution.asked.nproc->source, "counted on each node of the allocation");
    else
      SetRanksPerNode(resolution, CountRanks(resolution, *resolution.asked.nproc), true);
    if (out.nproc_per_node && facts->nproc && facts->nproc->value != *out.nproc_per_node)
      in.Warn(fmt::format("{} overrides {}", resolution.asked.nproc->source, facts->nproc->source));
    facts->nproc_by_node.clear();
  } else if (facts->nproc) {
    SetRanksPerNode(resolution, facts->nproc, true);
    const int gpus = resolution.machine.gpus;
    if (!elsewhere && ((gpus > 1 && facts->nproc->value != gpus) || (gpus > 0 && facts->nproc->value > gpus)))
      in.Warn(fmt::format("{}: {} on this node, beside {}", facts->nproc->source, Count(facts->nproc->value, "rank"),
                          VisibleGpus(resolution.machine)));
  } else if (elsewhere) {
    in.Supports("no node of the allocation", "each node counts its own GPUs");
    out.nproc_source = "counted on each node";
  } else if (resolution.machine.gpus > 0) {
    SetRanksPerNode(resolution, Said<int>{resolution.machine.gpus, VisibleGpus(resolution.machine)}, false);
  } else {
    SetRanksPerNode(resolution, Said<int>{1, "no visible GPU"}, false);
  }

  if (out.nnodes && out.nproc_per_node) {
    const bool listed = facts->nproc_by_node.size() == static_cast<size_t>(*out.nnodes);
    const int64_t world = listed ? std::accumulate(facts->nproc_by_node.begin(), facts->nproc_by_node.end(), int64_t{0})
                                 : static_cast<int64_t>(*out.nnodes) * *out.nproc_per_node;
    if (world > kMaxCount)
      in.Fail(fmt::format("{} x {} = {} ranks: expected at most {}", Count(*out.nnodes, "node"), *out.nproc_per_node,
                          world, kMaxCount),
              "correct --nnodes or --nproc-per-node");
    else
      out.world_size = static_cast<int>(world);
    // With one rank on the node, the node's number is the rank's.
    if (*out.nproc_per_node == 1 && out.node_rank && facts->starts != Starts::kOnce && !listed) {
      out.rank = out.node_rank;
      out.local_rank = 0;
    }
  }
}

// Ranks on this node under process level, where no variable says so.
std::optional<Said<int>> DeriveLocalSize(Resolution& resolution) {
  const Placement& out = resolution.out;
  if (!out.world_size) return std::nullopt;
  const int world = *out.world_size, gpus = resolution.machine.gpus;
  if (world == 1) return Said<int>{1, "a world of one"};
  if (out.nnodes && world % *out.nnodes == 0)
    return Said<int>{world / *out.nnodes, fmt::format("{} ranks on {}", world, Count(*out.nnodes, "node"))};
  std::optional<std::string> master = resolution.in.Text("MASTER_ADDR");
  if (master && IsLoopback(*master))
    return Said<int>{world, resolution.in.Source("MASTER_ADDR") + ": all ranks are on this node"};
  if (gpus > 1 && world % gpus == 0 && out.rank && out.local_rank && *out.local_rank < gpus &&
      *out.rank >= *out.local_rank && (*out.rank - *out.local_rank) % gpus == 0)
    return Said<int>{gpus, VisibleGpus(resolution.machine) + ", and the ranks fit"};
  return std::nullopt;
}

void ProcessCounts(Resolution& resolution, PlatformFacts* facts) {
  Placement& out = resolution.out;
  Reader& in = resolution.in;
  out.world_size = Choose(resolution, "ranks", std::nullopt, facts->world);
  out.rank = Choose(resolution, "this rank", std::nullopt, facts->rank);
  out.local_rank = Choose(resolution, "local rank", std::nullopt, facts->local_rank);
  const Asked none;
  const Asked& asked = out.nested ? none : resolution.asked;
  out.nnodes = Choose(resolution, "nodes", asked.nnodes, facts->nnodes);
  out.node_rank = Choose(resolution, "this node", asked.node_rank, facts->node_rank);
  if (out.nnodes == 1 && !out.node_rank) out.node_rank = 0;

  std::optional<Said<int>> wanted;
  if (asked.nproc) wanted = CountRanks(resolution, *asked.nproc);
  if (facts->nproc && wanted && wanted->value != facts->nproc->value && wanted->value > 1)
    in.Fail(fmt::format("{} says {} rank{} on this node, {} asks for {}: either one command per rank is already "
                        "started, or each of "
                        "them should start {}",
                        facts->nproc->source, facts->nproc->value, facts->nproc->value == 1 ? "" : "s", wanted->source,
                        wanted->value, wanted->value),
            "drop --nproc-per-node to keep one rank per command; start one command per node, or pass --level=node, to "
            "fan out");
  const bool derived = !facts->nproc && !(wanted && wanted->value > 1);
  SetRanksPerNode(resolution, facts->nproc ? facts->nproc : derived ? DeriveLocalSize(resolution) : wanted, !derived);
  if (!out.nproc_per_node) {
    in.Supports("no variable", "ranks per node are unknown until the launchers meet");
    out.nproc_source = "unknown until the launchers meet";
  }

  if (!out.nnodes && out.world_size && out.nproc_per_node && *out.world_size % *out.nproc_per_node == 0) {
    out.nnodes = *out.world_size / *out.nproc_per_node;
    in.Supports(fmt::format("{}, {} on this node", Count(*out.world_size, "rank"), *out.nproc_per_node),
                Count(*out.nnodes, "node") + " if all have as many");
    if (*out.nnodes == 1) out.node_rank = 0;
  }
  // Launchers that set LOCAL_RANK number the ranks of a node in one block; MPI need not.
  const bool block = resolution.row.rule == LevelRule::kWorker || resolution.row.rule == LevelRule::kProcess;
  if (!out.node_rank && block && out.rank && out.local_rank && out.nproc_per_node && *out.rank >= *out.local_rank &&
      (*out.rank - *out.local_rank) % *out.nproc_per_node == 0) {
    out.node_rank = (*out.rank - *out.local_rank) / *out.nproc_per_node;
    in.Supports(fmt::format("rank {}, local rank {}, {} per node", *out.rank, *out.local_rank, *out.nproc_per_node),
                fmt::format("node {} in block order", *out.node_rank));
  }
  if (!out.node_rank) in.Supports("no variable", "the number of this node is not told: agreed when the launchers meet");
  if (out.world_size && !out.local_rank && !in.failed())
    in.Warn(
        "the local rank is not told: agreed when the launchers meet; set LOCAL_RANK if the program needs it before");
}

}  // namespace

void Compose(Resolution& resolution, PlatformFacts facts) {
  Placement& out = resolution.out;
  if (out.nested) RefuseFanOutInsideWorker(resolution);
  ApplyLevel(resolution, &facts);
  if (resolution.asked.standalone && !out.nested) {
    resolution.in.Decides("--standalone", "a job of this node alone");
    if (facts.level == Level::kProcess || (facts.nnodes && facts.nnodes->value > 1))
      resolution.in.Warn("--standalone: every command that the platform started runs a job of its own");
    facts.level = Level::kNode;
    facts.starts = Starts::kPerNode;
    facts.nnodes = Said<int>{1, "--standalone"};
    facts.node_rank = Said<int>{0, "--standalone"};
    facts.nproc_by_node.clear();
    facts.hosts.clear();
  }
  out.level = facts.level;
  out.starts = facts.starts == Starts::kOnce    ? Starts::kOnce
               : facts.level == Level::kProcess ? Starts::kPerProcess
                                                : Starts::kPerNode;
  if (!facts.level) {
    // Undecided: what is the same in every reading is still shown.
    if (!resolution.in.failed()) resolution.in.Fail("node or process level is unknown", "pass --level=node|process");
  } else if (*facts.level == Level::kNode) {
    NodeCounts(resolution, &facts);
  } else {
    ProcessCounts(resolution, &facts);
  }
  if (out.nnodes && facts.nproc_by_node.size() == static_cast<size_t>(*out.nnodes))
    out.nproc_by_node = facts.nproc_by_node;
  if (facts.level == Level::kProcess) out.local_world_size = out.nproc_per_node;
  if (facts.level == Level::kNode && out.nproc_per_node) out.local_world_size = out.nproc_per_node;
  Check(resolution, facts);
  FindMaster(resolution, facts);
}

}  // namespace lockstep::place
