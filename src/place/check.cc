// Checks that hold for every platform: numbers that cannot be together, and names of other contracts that agree or not.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "place/facts.h"

namespace lockstep::place {
namespace {

bool Reads(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// NNODES and NODE_RANK beside a platform that has its own names.
void CompareNodeNames(Resolution& resolution) {
  Reader& in = resolution.in;
  const Placement& out = resolution.out;
  if (out.nested || out.level != Level::kNode || resolution.row.rule == LevelRule::kBare || resolution.asked.standalone)
    return;
  auto compare = [&](const Names& read, std::string_view name, std::optional<int> value, std::string_view flag) {
    if (!value || !in.Has(name) || Reads(read, name)) return;
    if (ParseNumber(*in.Text(name)) == value) return in.Supports(in.Source(name), "agrees");
    in.Ignored(in.Source(name), fmt::format("{} says otherwise", resolution.row.what));
    in.Warn(fmt::format("{} disagrees with {} and is not used (pass {})", in.Source(name), resolution.row.what, flag));
  };
  compare(resolution.row.nnodes, "NNODES", out.nnodes, "--nnodes");
  compare(resolution.row.node_rank, "NODE_RANK", out.node_rank, "--node-rank");
}

// WORLD_SIZE and RANK that this platform does not speak with, or that flags overrule.
void CompareRankNames(Resolution& resolution) {
  Reader& in = resolution.in;
  const Platform& row = resolution.row;
  const Placement& out = resolution.out;
  const bool overruled = row.rule == LevelRule::kBare && resolution.asked.nnodes && resolution.asked.node_rank;
  if (!in.Has("WORLD_SIZE") || resolution.asked.standalone) return;
  if (!overruled && (Reads(row.world, "WORLD_SIZE") || Reads(row.nnodes, "WORLD_SIZE"))) return;
  const bool ranked = in.Has("RANK");
  const std::optional<int> world = ParseNumber(*in.Text("WORLD_SIZE"));
  const std::optional<int> rank = ranked ? ParseNumber(*in.Text("RANK")) : std::nullopt;
  const std::string source = ranked ? in.Source("WORLD_SIZE") + ", " + in.Source("RANK") : in.Source("WORLD_SIZE");
  const bool rank_is_node = !ranked || (rank && rank == out.node_rank);
  if (out.level == Level::kNode && world && world == out.nnodes && rank_is_node) {
    in.Supports(source, "counts nodes, and agrees");
  } else if (out.level == Level::kNode && world && world == out.world_size && rank_is_node) {
    in.Supports(source, ranked ? "mixed, as PyTorchJob v1 does: WORLD_SIZE counts ranks, RANK is the node"
                               : "counts ranks, and agrees");
  } else if (out.level == Level::kProcess && world && world == out.world_size && (!ranked || rank == out.rank)) {
    in.Supports(source, "agrees");
  } else {
    const std::string who(overruled ? "the command line" : row.what);
    in.Ignored(source, who + " says otherwise");
    if (out.nnodes && (out.world_size || out.starts == Starts::kOnce))
      in.Warn(fmt::format("{} disagrees with {} and is not used", source, who));
  }
}

// A platform of several nodes that has no row would look like "nothing at all", and every node would train alone.
void WarnOfUnreadPlatforms(Resolution& resolution) {
  if (resolution.row.name != "local" || resolution.asked.nnodes || resolution.asked.standalone) return;
  for (const Trap& unread : UnreadPlatforms())
    if (resolution.in.Has(unread.name))
      resolution.in.Warn(
          fmt::format("{}: variables of {} are not read yet, this looks like one node; pass --nnodes, --node-rank and "
                      "--master-addr if it is not",
                      unread.name, unread.why));
}

}  // namespace

void Check(Resolution& resolution, const PlatformFacts& facts) {
  const Placement& out = resolution.out;
  Reader& in = resolution.in;
  CompareNodeNames(resolution);
  CompareRankNames(resolution);
  WarnOfUnreadPlatforms(resolution);
  constexpr const char* kTwoJobs =
      "the variables are corrupt or belong to two jobs: correct them, or pass --level, --nnodes and --node-rank";
  auto below = [&](const char* what, std::optional<int> index, std::optional<int> count, const char* of,
                   const char* many, const char* hint) {
    if (index && count && *index >= *count)
      in.Fail(fmt::format("{} {} does not exist in a job of {}", what, *index, Count(*count, of, many)), hint);
  };
  if (facts.world && facts.rank && facts.rank->value >= facts.world->value)
    in.Fail(fmt::format("rank {} does not exist in a job of {}: {} is not below {}", facts.rank->value,
                        Count(facts.world->value, "rank"), facts.rank->source, facts.world->source),
            kTwoJobs);
  below("rank", out.rank, out.world_size, "rank", "ranks", kTwoJobs);
  below("node", out.node_rank, out.nnodes, "node", "nodes",
        "correct --node-rank or --nnodes, or the variables they come from (evidence below)");
  below("local rank", out.local_rank, out.nproc_per_node, "rank per node", "ranks per node",
        "correct LOCAL_RANK or --nproc-per-node, or the variables they come from");
  below("local rank", out.local_rank, out.world_size, "rank", "ranks", kTwoJobs);
  if (out.level != Level::kProcess || !out.world_size) return;
  const int nnodes = out.nnodes.value_or(1), nproc = out.nproc_per_node.value_or(1), world = *out.world_size;
  if (nproc > world || nnodes > world)
    in.Fail(fmt::format("{} and {} on this node do not fit in a world of {}", Count(nnodes, "node"),
                        Count(nproc, "rank"), world),
            kTwoJobs);
  else if (out.nnodes && out.nproc_per_node && out.nproc_by_node.empty() &&
           static_cast<int64_t>(nnodes) * nproc != world)
    in.Warn(
        fmt::format("{} x {} on this node is {}, the world is {}: nodes of different size, or variables of two jobs",
                    Count(nnodes, "node"), Count(nproc, "rank"), static_cast<int64_t>(nnodes) * nproc, world));
}

}  // namespace lockstep::place
