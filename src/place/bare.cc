// WORLD_SIZE and RANK mean nodes on some platforms and processes on others. Taking one for the other uses 1 GPU of 8,
// or starts 8 launchers per node, so each rule here is one that cannot be explained by the other reading; where none
// applies the answer is an error that shows both.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "place/facts.h"

namespace lockstep::place {
namespace {

struct Bare {
  std::optional<Said<int>> world, rank, nnodes, node_rank;
  std::optional<Said<int>> nproc;  // said by flag or variable
  int per_node = 1;                // ranks this node would get: said, else visible GPUs, else 1
};

std::string Both(const Bare& bare) {
  const int64_t world = bare.world->value, n = bare.per_node;
  std::string processes =
      fmt::format("{}{}, one process each",
                  world % n == 0 ? fmt::format("{} x {} = ", Count(world / n, "node"), n) : "", Count(world, "rank"));
  return fmt::format("as nodes: {} x {} = {}, this one is node {}; as processes: {}, this one is rank {}",
                     Count(world, "node"), n, Count(world * n, "rank"), bare.rank->value, processes, bare.rank->value);
}

void Undecided(Resolution& resolution, const Bare& bare, std::string_view why) {
  resolution.in.Contradicts(bare.world->source, fmt::format("as nodes: {}, this one is {}",
                                                            Count(bare.world->value, "node"), bare.rank->value));
  resolution.in.Contradicts(bare.rank->source, fmt::format("as processes: {}, this one is {}",
                                                           Count(bare.world->value, "rank"), bare.rank->value));
  resolution.in.Fail(
      fmt::format("{} and {} can be read in two ways ({}): {}", bare.world->source, bare.rank->source, why, Both(bare)),
      "pass --level=node if the platform starts one command per node, --level=process if it starts one per GPU");
}

// The level by what is written down beside WORLD_SIZE and RANK; nullopt when nothing settles it (and maybe an error).
std::optional<Level> ByNodeCount(Resolution& resolution, const Bare& bare) {
  Reader& in = resolution.in;
  const int64_t world = bare.world->value, rank = bare.rank->value, nnodes = bare.nnodes->value;
  if (world == nnodes) {
    in.Decides(bare.nnodes->source, fmt::format("{} counts nodes", bare.world->source));
    if (bare.node_rank && bare.node_rank->value != rank) {
      in.Fail(fmt::format("{} and {} name two different nodes", bare.node_rank->source, bare.rank->source),
              "correct one of them, or pass --node-rank");
    }
    return Level::kNode;
  }
  if (world % nnodes != 0 || (bare.nproc && world != nnodes * bare.nproc->value)) {
    in.Fail(
        fmt::format(
            "{} is neither the number of nodes ({}) nor of ranks{}", bare.world->source, bare.nnodes->source,
            bare.nproc ? fmt::format(" ({} x {} = {})", nnodes, bare.nproc->value, nnodes * bare.nproc->value) : ""),
        "unset the wrong one, or pass --nnodes, --node-rank and --nproc-per-node");
    return std::nullopt;
  }
  const int64_t per_node = world / nnodes;
  in.Supports(bare.nnodes->source,
              fmt::format("{} counts ranks: {} x {}", bare.world->source, Count(nnodes, "node"), per_node));
  if (bare.node_rank && bare.node_rank->value == rank) {
    in.Decides(bare.node_rank->source,
               fmt::format("{} is the node's index too: one command per node", bare.rank->source));
    return Level::kNode;
  }
  if (bare.nproc && rank < nnodes && (!bare.node_rank || bare.node_rank->value == rank)) {
    in.Decides(bare.nproc->source, fmt::format("each command starts {}, so {} is the node's index",
                                               Count(bare.nproc->value, "rank"), bare.rank->source));
    return Level::kNode;
  }
  Undecided(resolution, bare, "the number of nodes does not settle who started what");
  return std::nullopt;
}

std::optional<Level> Decide(Resolution& resolution, const Bare& bare) {
  Reader& in = resolution.in;
  const int world = bare.world->value, rank = bare.rank->value;
  if (resolution.asked.level) return resolution.asked.level;
  const std::vector<int>& siblings = resolution.machine.sibling_ranks;
  if (std::any_of(siblings.begin(), siblings.end(), [&](int other) { return other != rank; })) {
    in.Decides(fmt::format("RANK={} in the environment of other launchers here", fmt::join(siblings, ",")),
               "several commands with different ranks run on this node: one per process");
    return Level::kProcess;
  }
  if (bare.nnodes) return ByNodeCount(resolution, bare);
  if (bare.node_rank && bare.node_rank->value != rank) {
    Undecided(resolution, bare, bare.node_rank->source + " differs from RANK");
    return std::nullopt;
  }
  if (bare.nproc) {
    in.Decides(bare.nproc->source,
               fmt::format("each command starts its own ranks, so {} counts nodes", bare.world->source));
    return Level::kNode;
  }
  const int gpus = resolution.machine.gpus;
  const std::string visible = VisibleGpus(resolution.machine);
  if (world == 1) {
    in.Decides(bare.world->source, "one node in either reading");
    return Level::kNode;
  }
  if (gpus <= 1) {
    in.Decides(visible, "one rank per command in either reading");
    return Level::kNode;
  }
  if (world < gpus) {
    in.Decides(visible, fmt::format("{} would not even fill one node that shows all its GPUs: {} counts nodes",
                                    Count(world, "process", "processes"), bare.world->source));
    return Level::kNode;
  }
  if (world % gpus != 0) {
    in.Decides(visible, fmt::format("{} processes do not fill nodes of {} GPUs: {} counts nodes", world, gpus,
                                    bare.world->source));
    return Level::kNode;
  }
  Undecided(resolution, bare, visible);
  return std::nullopt;
}

void WithoutWorldAndRank(Resolution& resolution, const Bare& bare, PlatformFacts* facts) {
  Reader& in = resolution.in;
  const bool said = resolution.asked.nnodes.has_value() || bare.nnodes.has_value();
  if (bare.world) {
    // WORLD_SIZE alone: half a contract. It matters only if nothing better says how many nodes there are.
    if (said)
      in.Ignored(bare.world->source, "without RANK it says too little, and the number of nodes is known");
    else if (bare.node_rank)
      facts->nnodes = WorldAsNodes(resolution);
    else if (bare.world->value > 1)
      in.Fail(fmt::format("{} without RANK: this command cannot know which one of them it is", bare.world->source),
              "unset WORLD_SIZE, or pass --nnodes and --node-rank");
  }
  if (bare.rank) {
    if (said)
      in.Ignored(bare.rank->source, "without WORLD_SIZE it says too little, and the number of nodes is known");
    else if (bare.rank->value > 0)
      in.Fail(fmt::format("{} without WORLD_SIZE: of how many is unknown", bare.rank->source),
              "unset RANK, or pass --nnodes and --node-rank");
    else
      in.Ignored(bare.rank->source, "without WORLD_SIZE it says nothing");
  }
  facts->level = Level::kNode;
  // Ranks per node under a rank's name, where there is no rank: a count like any other.
  if (!bare.nproc) facts->nproc = in.Number("LOCAL_WORLD_SIZE", 1);
}

}  // namespace

std::optional<Said<int>> WorldAsNodes(Resolution& resolution) {
  Reader& in = resolution.in;
  std::optional<Said<int>> world = in.Number("WORLD_SIZE", 1);
  if (!world) return std::nullopt;
  if (std::optional<Said<int>> local = in.Number("LOCAL_WORLD_SIZE", 1)) {
    if (world->value % local->value == 0) {
      in.Decides(local->source,
                 fmt::format("{} counts ranks: {}", world->source, Count(world->value / local->value, "node")));
      return Said<int>{world->value / local->value, world->source + ", " + local->source};
    }
    in.Fail(fmt::format("{} is no multiple of {}", world->source, local->source), "pass --nnodes");
    return std::nullopt;
  }
  const int gpus = resolution.machine.gpus;
  if (world->value == 1 || gpus <= 1 || world->value < gpus || world->value % gpus != 0) {
    in.Decides(world->source, fmt::format("counts nodes: {} GPU{} visible here", gpus, gpus == 1 ? " is" : "s are"));
    return world;
  }
  in.Fail(fmt::format("{} can be read in two ways: {} nodes x {} = {} ranks, or {} x {} = {} ranks", world->source,
                      world->value, gpus, static_cast<int64_t>(world->value) * gpus, Count(world->value / gpus, "node"),
                      gpus, world->value),
          "pass --nnodes");
  return std::nullopt;
}

void ReadBare(Resolution& resolution, PlatformFacts* facts) {
  Reader& in = resolution.in;
  const Asked& asked = resolution.asked;
  const bool told = asked.nnodes && asked.node_rank;  // by flags: the variables cannot matter
  Bare bare;
  bare.world = in.NumberUnless(told, {"WORLD_SIZE"}, 1);
  bare.rank = in.NumberUnless(told, {"RANK"}, 0);
  facts->nnodes = in.NumberUnless(asked.nnodes.has_value(), kNodeCountNames, 1);
  facts->node_rank = in.NumberUnless(asked.node_rank.has_value(), kNodeRankNames, 0);
  bare.nnodes = asked.nnodes ? asked.nnodes : facts->nnodes;
  bare.node_rank = asked.node_rank ? asked.node_rank : facts->node_rank;
  std::optional<Said<std::string>> spec = asked.nproc ? asked.nproc : in.Text(kRanksPerNodeNames);
  if (spec) bare.nproc = CountRanks(resolution, *spec);
  if (bare.nproc && !asked.nproc) facts->nproc = bare.nproc;
  bare.per_node = bare.nproc ? bare.nproc->value : std::max(resolution.machine.gpus, 1);
  if (in.failed()) return;
  if (told && asked.level != Level::kProcess) {
    if (resolution.row.name == "bare") resolution.out.platform = "bare-node";
    facts->level = Level::kNode;
    in.Decides(asked.node_rank->source, "a node's number is asked for: one command per node");
    return;
  }
  if (!bare.world || !bare.rank) {
    WithoutWorldAndRank(resolution, bare, facts);
    return;
  }
  if (in.Has("LOCAL_RANK")) {
    if (!asked.level)
      in.Fail(fmt::format("{}: expected a number beside {} and {}", in.Source("LOCAL_RANK"), bare.world->source,
                          bare.rank->source),
              "correct or unset LOCAL_RANK, or pass --level=node|process");
    else
      in.Ignored(in.Source("LOCAL_RANK"), "no number");
  }
  if (bare.rank->value >= bare.world->value)
    in.Fail(fmt::format("{} is not below {}", bare.rank->source, bare.world->source),
            "the variables are corrupt or belong to two jobs: correct them, or pass --nnodes and --node-rank");
  if (in.failed()) return;
  facts->level = Decide(resolution, bare);
  if (!facts->level) return;
  if (*facts->level == Level::kProcess) {
    if (!facts->nnodes) resolution.out.platform = "bare-process";
    facts->world = bare.world;
    facts->rank = bare.rank;
    if (bare.world->value == 1) facts->local_rank = Said<int>{0, bare.world->source};
    return;
  }
  if (resolution.row.name == "bare") resolution.out.platform = "bare-node";
  const bool counts_ranks = bare.nnodes && bare.nnodes->value != bare.world->value;
  if (!facts->nnodes && !counts_ranks) facts->nnodes = bare.world;
  if (!facts->node_rank) facts->node_rank = bare.rank;
  if (counts_ranks && !bare.nproc)
    facts->nproc = Said<int>{bare.world->value / bare.nnodes->value, bare.world->source + ", " + bare.nnodes->source};
}

}  // namespace lockstep::place
