#include "place/placement.h"

#include <fmt/format.h>

#include "base/digits.h"
#include "base/glob.h"
#include "base/text.h"
#include "place/facts.h"

namespace lockstep::place {
namespace {

bool Holds(const Sign& sign, Reader& in, const Machine& machine) {
  std::optional<std::string> value;
  if (sign.name == "@host") {
    value = machine.host;
  } else if (sign.name.ends_with('*')) {
    return in.AnyWith(sign.name.substr(0, sign.name.size() - 1)).has_value();
  } else if (in.Has(sign.name)) {
    value = in.Text(sign.name);
  }
  switch (sign.want) {
    case Want::kSet:
      return value.has_value();
    case Want::kDigits:
      return value && IsDigits(Trim(*value));
    case Want::kLike:
      return value && GlobMatches(sign.pattern, *value);
    case Want::kAbsent:
      return !value;
  }
  return false;
}

// The group of signs by which a row is recognised, in words; nullopt when it is not.
std::optional<std::string> Recognise(const Platform& row, Reader& in, const Machine& machine) {
  if (row.signs.empty()) return "";
  for (const std::vector<Sign>& group : row.signs) {
    bool all = true;
    std::vector<std::string> seen;
    for (const Sign& sign : group) {
      all = all && Holds(sign, in, machine);
      if (sign.want == Want::kAbsent) continue;
      if (sign.name == "@host")
        seen.push_back("host " + machine.host);
      else if (sign.name.ends_with('*'))
        seen.push_back(in.AnyWith(sign.name.substr(0, sign.name.size() - 1)).value_or(""));
      else
        seen.push_back(in.Source(sign.name));
    }
    if (all) return fmt::format("{}", fmt::join(seen, ", "));
  }
  return std::nullopt;
}

void NoteTraps(Resolution& resolution) {
  for (const Trap& trap : resolution.row.traps)
    if (resolution.in.Has(trap.name)) resolution.in.Ignored(resolution.in.Source(trap.name), std::string(trap.why));
}

// Rows that are fully described by their variables.
void ReadByTable(Resolution& resolution, PlatformFacts* facts) {
  Reader& in = resolution.in;
  const Platform& row = resolution.row;
  facts->nnodes = in.NumberUnless(resolution.asked.nnodes.has_value(), row.nnodes, 1);
  facts->node_rank = in.NumberUnless(resolution.asked.node_rank.has_value(), row.node_rank, 0);
  facts->world = in.Number(row.world, 1);
  facts->rank = in.Number(row.rank, 0);
  facts->local_rank = in.Number(row.local_rank, 0);
  std::optional<Said<std::string>> spec = in.Text(row.nproc);
  if (spec && (!resolution.asked.nproc || row.rule != LevelRule::kNode)) facts->nproc = CountRanks(resolution, *spec);
}

void ReadWorker(Resolution& resolution, PlatformFacts* facts) {
  Reader& in = resolution.in;
  ReadByTable(resolution, facts);
  facts->level = Level::kProcess;
  resolution.out.nested = true;
  if (facts->world && facts->rank) return;
  if (resolution.row.one_node_unless_said && !facts->world && !facts->rank) {
    facts->world = facts->nnodes = facts->nproc = Said<int>{1, "no WORLD_SIZE: a single process"};
    facts->rank = facts->local_rank = facts->node_rank = Said<int>{0, "no RANK: a single process"};
    return;
  }
  in.Fail(fmt::format("{}, but {} is missing", resolution.row.what, facts->rank ? "WORLD_SIZE" : "RANK"),
          "unset the variables left over from another launcher (evidence below), or restore RANK and WORLD_SIZE");
}

// MPI: one process per node beside several GPUs is a launcher per node, anything else is a rank.
void ReadByLocalSize(Resolution& resolution, PlatformFacts* facts) {
  Reader& in = resolution.in;
  ReadByTable(resolution, facts);
  if (in.failed() || !facts->world || !facts->rank) return;
  if (!facts->nproc) {
    if (!resolution.asked.level)
      in.Fail(fmt::format("{}: {} is missing, so the number of processes on this node is unknown", resolution.row.what,
                          resolution.row.nproc.front()),
              "pass --level=node|process");
    facts->level = resolution.asked.level;
    return;
  }
  if (facts->nproc->value == 1 && resolution.machine.gpus > 1) {
    in.Decides(facts->nproc->source, fmt::format("one process on this node beside {}: it stands for the node",
                                                 VisibleGpus(resolution.machine)));
    facts->level = Level::kNode;
    facts->nnodes = facts->world;
    facts->node_rank = facts->rank;
    facts->nproc.reset();
  } else {
    in.Decides(facts->nproc->source,
               facts->nproc->value == 1
                   ? "one process on this node: it is one rank"
                   : fmt::format("{} processes on this node: each is one rank", facts->nproc->value));
    facts->level = Level::kProcess;
    if (facts->world->value == facts->nproc->value) {
      facts->nnodes = Said<int>{1, facts->nproc->source};
      facts->node_rank = Said<int>{0, facts->nproc->source};
    }
  }
  const bool several = facts->nnodes ? facts->nnodes->value > 1 : facts->world->value > 1;
  if (!several) return;
  std::vector<std::string> hosts = AllocationHosts(resolution);
  if (hosts.empty()) return;
  facts->master_addr =
      Said<std::string>{hosts.front(), "first host of the SLURM allocation, " + in.Source("SLURM_JOB_NODELIST")};
  if (facts->nnodes && hosts.size() == static_cast<size_t>(facts->nnodes->value)) facts->hosts = std::move(hosts);
}

PlatformFacts ReadPlatform(Resolution& resolution) {
  PlatformFacts facts;
  switch (resolution.row.rule) {
    case LevelRule::kWorker:
      ReadWorker(resolution, &facts);
      break;
    case LevelRule::kLocalSize:
      ReadByLocalSize(resolution, &facts);
      break;
    case LevelRule::kSlurm:
      ReadSlurm(resolution, &facts);
      break;
    case LevelRule::kBare:
      ReadBare(resolution, &facts);
      break;
    case LevelRule::kProcess:
      ReadByTable(resolution, &facts);
      facts.level = Level::kProcess;
      break;
    case LevelRule::kNode:
      ReadByTable(resolution, &facts);
      facts.level = Level::kNode;
      break;
  }
  if (resolution.row.name == "indexed-job" && !facts.nnodes && !resolution.asked.nnodes)
    facts.nnodes = WorldAsNodes(resolution);
  return facts;
}

}  // namespace

Placement Resolve(const Environment& env, const Flags& flags, const Machine& machine) {
  Placement out;
  Reader in(env, &out);
  const Asked asked = ReadAsked(in, flags);
  for (const Platform& row : Platforms()) {
    std::optional<std::string> signs = Recognise(row, in, machine);
    if (!signs) continue;
    out.platform = row.name;
    Resolution resolution{in, machine, asked, row, out};
    if (signs->empty())
      in.Decides("environment", "no variable of any platform: one node, started by hand");
    else
      in.Decides(*signs, fmt::format("{}", row.what));
    NoteTraps(resolution);
    if (std::optional<Said<std::string>> id = in.Text(row.job_id)) out.job_id = id->value;
    PlatformFacts facts = ReadPlatform(resolution);
    Compose(resolution, std::move(facts));
    break;
  }
  return out;
}

const char* Name(Level level) { return level == Level::kNode ? "node" : "process"; }

const char* Name(Starts starts) {
  switch (starts) {
    case Starts::kPerNode:
      return "per-node";
    case Starts::kPerProcess:
      return "per-process";
    case Starts::kOnce:
      return "once";
  }
  return "";
}

}  // namespace lockstep::place
