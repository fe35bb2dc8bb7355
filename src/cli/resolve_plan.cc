#include "cli/resolve_plan.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "launch/auth.h"
#include "launch/worker_env.h"

namespace lockstep::cli {
namespace {

// A launcher started by another launcher's srun is told how many ranks each node gets; see launch/fanout.h.
std::vector<int> FanOutCounts(const place::Environment& env) {
  std::vector<int> counts;
  auto list = env.find("LOCKSTEP_NPROC_BY_NODE");
  if (list == env.end()) return counts;
  for (const std::string& count : Split(list->second, ',')) counts.push_back(std::atoi(count.c_str()));
  return counts;
}

void TakeFanOutCount(const place::Environment& env, place::Flags* flags) {
  const std::vector<int> counts = FanOutCounts(env);
  if (counts.empty() || flags->nproc_per_node) return;
  auto node = env.find("SLURM_NODEID");
  const size_t index = node == env.end() ? 0 : static_cast<size_t>(std::atoi(node->second.c_str()));
  // One count stands for all nodes.
  flags->nproc_per_node = std::to_string(counts[std::min(index, counts.size() - 1)]);
}

}  // namespace

Status ResolvePlacement(launch::LaunchPlan* plan, place::Machine* machine) {
  TakeFanOutCount(plan->env, &plan->options.place);
  *machine = place::ReadMachine(launch::RankEnvironment(plan->env, {}, plan->options));
  plan->placement = place::Resolve(plan->env, plan->options.place, *machine);
  // Unequal nodes: the world is their sum, not this node's count times the nodes.
  if (const auto counts = FanOutCounts(plan->env); counts.size() > 1 && counts.size() == plan->placement.nnodes) {
    plan->placement.world_size = std::accumulate(counts.begin(), counts.end(), 0);
  }
  plan->host = machine->host;
  plan->cpus = machine->cpus;
  plan->gpu_pci = machine->gpu_pci;
  return plan->placement.error.WithCode(Code::kUsage);
}

Status ResolveToken(launch::LaunchPlan* plan) {
  auto variable = plan->env.find("LOCKSTEP_TOKEN");
  auto token = launch::LoadToken(plan->options.token_file, variable == plan->env.end() ? "" : variable->second);
  if (!token.ok()) return token.status();
  plan->token = std::move(*token);
  return {};
}

}  // namespace lockstep::cli
