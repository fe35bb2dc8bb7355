// SLURM tells nobody WORLD_SIZE, RANK or MASTER_ADDR, and sets the same names in three situations that differ in who
// else was started: a step (srun started all), the body of a batch script and the shell of an allocation (one, for all
// nodes).
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "place/facts.h"
#include "place/slurm_nodelist.h"

namespace lockstep::place {
namespace {

const Names kJobNodeList = {"SLURM_JOB_NODELIST", "SLURM_NODELIST"};
const Names kStepId = {"SLURM_STEP_ID", "SLURM_STEPID"};

std::vector<std::string> Nodes(Resolution& resolution, const Names& names) {
  std::optional<Said<std::string>> list = resolution.in.Text(names);
  if (!list) return {};
  Result<std::vector<std::string>> nodes = ExpandNodeList(list->value);
  if (nodes.ok()) return *nodes;
  resolution.in.Fail(nodes.status().Context(list->source.substr(0, list->source.find('='))).message(),
                     "say the placement by flags: --nnodes, --node-rank, --master-addr");
  return {};
}

std::string_view JobListName(const Reader& in) { return in.Has(kJobNodeList[0]) ? kJobNodeList[0] : kJobNodeList[1]; }

bool Holds(const std::vector<std::string>& nodes, const std::string& node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

std::optional<std::vector<int>> TaskCounts(Resolution& resolution, std::string_view name) {
  std::optional<std::string> text = resolution.in.Text(name);
  if (!text) return std::nullopt;
  Result<std::vector<int>> counts = ExpandTaskCounts(*text);
  if (counts.ok()) return *counts;
  resolution.in.Fail(counts.status().Context(std::string(name)).message(), "say the level by --level=node|process");
  return std::nullopt;
}

// Why the step variables are not about this process; empty when they are. Shells of steps hand their variables down, so
// a job submitted from one carries a foreign step.
std::string NotThisStep(Resolution& resolution, const std::vector<std::string>& job_nodes,
                        const std::vector<std::string>& step_nodes) {
  Reader& in = resolution.in;
  std::optional<Said<std::string>> id = in.Text(kStepId);
  if (!id) return "no SLURM_STEP_ID: srun did not start this process";
  if (id->value == "4294967290" || id->value == "interactive")
    return id->source + " is the interactive shell of the allocation";
  if (id->value == "4294967291" || id->value == "batch") return id->source + " is the body of the batch script";
  if (id->value == "4294967292" || id->value == "extern") return id->source + " is SLURM's external step";
  if (!in.Has("SLURM_PROCID")) return "no SLURM_PROCID: srun did not start this process";
  for (const std::string& node : step_nodes)
    if (!job_nodes.empty() && !Holds(job_nodes, node))
      return fmt::format("{} is not of this job ({}): inherited from another job", in.Source("SLURM_STEP_NODELIST"),
                         in.Source("SLURM_JOB_NODELIST"));
  std::optional<std::string> here = in.Text("SLURMD_NODENAME");
  if (here && !step_nodes.empty() && !Holds(step_nodes, *here))
    return fmt::format("{} does not hold this node ({}): inherited from another job", in.Source("SLURM_STEP_NODELIST"),
                       *here);
  // srun sets SLURM_NNODES to the step's own count; only the first process of a batch body can see another one.
  std::optional<std::string> nnodes = in.Text("SLURM_NNODES"), step_nnodes = in.Text("SLURM_STEP_NUM_NODES");
  if (nnodes && step_nnodes && *nnodes != *step_nnodes && in.Text("SLURM_PROCID") == "0" &&
      in.Text("SLURM_NODEID") == "0")
    return fmt::format("{} and {} disagree: the step is inherited from another job", in.Source("SLURM_NNODES"),
                       in.Source("SLURM_STEP_NUM_NODES"));
  return "";
}

// `nodes` is empty where SLURM_STEP_NODELIST is missing.
void ReadStep(Resolution& resolution, const std::vector<std::string>& nodes, const std::vector<std::string>& job_nodes,
              PlatformFacts* facts) {
  Reader& in = resolution.in;
  resolution.out.platform = "slurm-step";
  facts->hosts = nodes;
  facts->node_rank = in.Number("SLURM_NODEID", 0);
  facts->rank = in.Number("SLURM_PROCID", 0);
  facts->local_rank = in.Number("SLURM_LOCALID", 0);
  facts->world = in.Number(Names{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}, 1);
  facts->nnodes = in.Number(Names{"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 1);
  if (!facts->nnodes && !nodes.empty())
    facts->nnodes = Said<int>{static_cast<int>(nodes.size()), in.Source("SLURM_STEP_NODELIST")};

  std::string source = in.Source("SLURM_STEP_TASKS_PER_NODE");
  std::optional<std::vector<int>> counts = TaskCounts(resolution, "SLURM_STEP_TASKS_PER_NODE");
  if (in.failed()) return;
  if (!counts && facts->nnodes && facts->world && facts->world->value % facts->nnodes->value == 0) {
    // Every node of a step has at least one task, so equal numbers mean one on each.
    source = facts->world->source + ", " + facts->nnodes->source;
    counts = std::vector<int>(facts->nnodes->value, facts->world->value / facts->nnodes->value);
  }
  if (!counts) {
    in.Fail("SLURM step: SLURM_STEP_TASKS_PER_NODE is missing, so tasks per node are unknown",
            "pass --level=node|process");
    return;
  }
  const int sum = std::accumulate(counts->begin(), counts->end(), 0);
  if (!nodes.empty() && nodes.size() != counts->size()) {
    in.Fail(fmt::format("SLURM step: {} names {}, {} counts {}", in.Source("SLURM_STEP_NODELIST"),
                        Count(static_cast<int64_t>(nodes.size()), "node"), source, counts->size()),
            "one of the two is not this step's: say --nnodes, --node-rank and --level");
    return;
  }
  if (nodes.empty() && job_nodes.size() == counts->size()) facts->hosts = job_nodes;
  if (!facts->nnodes || facts->nnodes->value != static_cast<int>(counts->size()))
    facts->nnodes = Said<int>{static_cast<int>(counts->size()), source};
  if (!facts->world || facts->world->value != sum) facts->world = Said<int>{sum, source};
  if (!facts->node_rank && facts->rank && sum == static_cast<int>(counts->size())) facts->node_rank = facts->rank;

  if (*std::max_element(counts->begin(), counts->end()) == 1) {
    facts->level = Level::kNode;
    in.Decides(source, counts->size() == 1
                           ? "one task on the step's only node: it stands for the node"
                           : fmt::format("one task on each of {} nodes: each stands for its node", counts->size()));
    return;
  }
  facts->level = Level::kProcess;
  facts->nproc_by_node = *counts;
  if (facts->node_rank && facts->node_rank->value < static_cast<int>(counts->size()))
    facts->nproc = Said<int>{(*counts)[facts->node_rank->value], source};
  in.Decides(source, fmt::format("{} tasks on {} node{}: each task is one rank", sum, counts->size(),
                                 counts->size() == 1 ? "" : "s"));
  if (resolution.machine.gpus == 1)
    in.Supports(resolution.machine.gpus_source, "each task sees one GPU: it is device 0 whatever the local rank");
}

// How many ranks per node the request of the batch job amounts to. SLURM_TASKS_PER_NODE counts CPUs unless tasks were
// asked for, and SLURM_NTASKS may be inherited; together they are sure.
void ReadRequestedTasks(Resolution& resolution, size_t nodes, PlatformFacts* facts) {
  Reader& in = resolution.in;
  std::optional<std::vector<int>> counts = TaskCounts(resolution, "SLURM_TASKS_PER_NODE");
  std::optional<Said<int>> ntasks = in.Number("SLURM_NTASKS", 1);
  if (!counts || !ntasks) return;
  if (counts->size() != nodes || std::accumulate(counts->begin(), counts->end(), 0) != ntasks->value) {
    in.Ignored(ntasks->source, fmt::format("does not add up with {}", in.Source("SLURM_TASKS_PER_NODE")));
    return;
  }
  if (*std::max_element(counts->begin(), counts->end()) == 1) {
    in.Supports(ntasks->source, "one task per node was asked for: one launcher on each");
    return;
  }
  facts->nproc = Said<int>{counts->front(), in.Source("SLURM_TASKS_PER_NODE") + " with " + ntasks->source};
  facts->nproc_by_node = *counts;
}

void ReadAllocation(Resolution& resolution, const std::vector<std::string>& nodes, const std::string& why,
                    bool inherited, PlatformFacts* facts) {
  Reader& in = resolution.in;
  std::optional<std::string> here = in.Text("SLURMD_NODENAME");
  std::optional<std::string> step = in.Text("SLURM_STEP_ID");
  const bool outside = !here || !Holds(nodes, *here);
  const bool shell = step == "4294967290" || step == "interactive" || !in.Has("SLURM_PROCID") || (inherited && outside);
  resolution.out.platform = shell ? "slurm-allocation" : "slurm-batch";
  facts->level = Level::kNode;
  facts->starts = Starts::kOnce;
  facts->hosts = nodes;
  in.Decides(why, shell ? "a shell of the allocation: this command was started once for all of its nodes"
                        : "the body of a batch script: this command was started once for all nodes of the job");
  if (inherited) in.Warn(why + "; its step variables are not used");

  facts->nnodes = in.Number(Names{"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1);
  if (!nodes.empty()) {
    if (facts->nnodes && facts->nnodes->value != static_cast<int>(nodes.size()))
      in.Fail(
          fmt::format("SLURM allocation: {} and {} disagree", facts->nnodes->source, in.Source("SLURM_JOB_NODELIST")),
          "pass --nnodes and --master-addr");
    facts->nnodes = Said<int>{static_cast<int>(nodes.size()), in.Source(JobListName(in))};
  }
  if (!outside) {
    const auto index = std::find(nodes.begin(), nodes.end(), *here) - nodes.begin();
    facts->node_rank = Said<int>{static_cast<int>(index), in.Source("SLURMD_NODENAME")};
  } else if (here && !nodes.empty()) {
    in.Ignored(in.Source("SLURMD_NODENAME"), "this shell runs outside the allocation");
  } else if (!here) {
    in.Supports("no SLURMD_NODENAME", "this shell may run outside the allocation, on a login node");
  }
  ReadRequestedTasks(resolution, nodes.size(), facts);
}

// GPUs per node that SLURM granted. In an allocation shell only the request is known: "8" or "h100:8".
std::optional<Said<int>> GrantedGpus(Reader& in, bool request_counts) {
  for (const char* name : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}) {
    if (name == std::string_view("SLURM_GPUS_PER_NODE") && !request_counts) break;
    std::optional<std::string> text = in.Text(name);
    if (!text) continue;
    std::optional<int> count = ParseNumber(text->substr(text->rfind(':') + 1));
    if (count && *count <= kMaxCount) return Said<int>{*count, in.Source(name)};
    in.Ignored(in.Source(name), "not one count of GPUs");
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> AllocationHosts(Resolution& resolution) { return Nodes(resolution, kJobNodeList); }

void ReadSlurm(Resolution& resolution, PlatformFacts* facts) {
  Reader& in = resolution.in;
  const std::vector<std::string> job_nodes = Nodes(resolution, kJobNodeList);
  const std::vector<std::string> step_nodes = Nodes(resolution, {"SLURM_STEP_NODELIST"});
  for (const char* size : {"SLURM_HET_SIZE", "SLURM_PACK_SIZE"}) {
    std::optional<std::string> groups = in.Text(size);
    if (groups && *groups != "1")
      in.Warn(
          fmt::format("{}: a heterogeneous job; this placement covers this component only, the others need "
                      "--nnodes, --node-rank and --master-addr",
                      in.Source(size)));
  }
  const std::string why = NotThisStep(resolution, job_nodes, step_nodes);
  if (why.empty())
    ReadStep(resolution, step_nodes, job_nodes, facts);
  else
    ReadAllocation(resolution, job_nodes, why, why.find("inherited") != std::string::npos, facts);
  if (!facts->hosts.empty()) {
    std::string_view list = why.empty() && !step_nodes.empty() ? "SLURM_STEP_NODELIST" : JobListName(in);
    facts->master_addr = Said<std::string>{facts->hosts.front(), "first host of " + in.Source(list)};
  }
  std::optional<Said<int>> gpus = GrantedGpus(in, facts->starts == Starts::kOnce);
  if (gpus && facts->level == Level::kNode && !facts->nproc && gpus->value > 0) {
    if (facts->starts == Starts::kOnce || resolution.machine.gpus == 0) {
      if (resolution.machine.gpus == 0 && facts->starts != Starts::kOnce)
        in.Warn(gpus->source + ", but no GPU is visible here");
      facts->nproc = gpus;
    } else if (gpus->value != resolution.machine.gpus) {
      in.Contradicts(gpus->source,
                     fmt::format("{} visible here", Count(resolution.machine.gpus, "GPU is", "GPUs are")));
    }
  }
}

}  // namespace lockstep::place
