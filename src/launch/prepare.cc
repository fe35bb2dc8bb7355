#include "launch/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/digits.h"
#include "base/text.h"
#include "launch/auth.h"
#include "launch/fanout.h"
#include "launch/torch_version.h"
#include "launch/tuning.h"

namespace lockstep::launch {
namespace {

// PyTorch 2.10 warns about the old names of its Flight Recorder's settings on every rank.
constexpr std::pair<int, int> kFirstTorchWithoutOldNames{2, 10};

// A launcher that another one started through srun is told how many ranks each node gets; one count stands for all.
Result<std::vector<int>> FanOutCounts(const Environment& env) {
  std::vector<int> counts;
  const auto list = env.find(kCountsVariable);
  if (list == env.end()) return counts;
  for (const std::string& word : Split(list->second, ',')) {
    const auto count = ParseDigits(word);
    if (!count || *count < 1) {
      return Status(Code::kUsage,
                    fmt::format("{}='{}': expected ranks per node, one number or one for each node (8 or 8,4), found "
                                "'{}'",
                                kCountsVariable, Printable(list->second), Printable(word)),
                    "unset it: the launcher that starts this one through srun sets it");
    }
    counts.push_back(*count);
  }
  return counts;
}

// Which of the counts is this node's.
Result<size_t> NodeIndex(const Environment& env) {
  const auto node = env.find("SLURM_NODEID");
  if (node == env.end()) return size_t{0};
  const auto index = ParseDigits<size_t>(node->second);
  if (index) return *index;
  return Status(Code::kUsage, fmt::format("SLURM_NODEID='{}' is not a number", Printable(node->second)),
                "unset it outside of a SLURM step");
}

Status Place(LaunchPlan* plan, const place::MachineOptions& options) {
  const place::Machine machine = place::ReadMachine(RankEnvironment(plan->env, {}, plan->options), options);
  plan->host = machine.host;
  plan->cpus = machine.cpus;
  plan->gpu_pci = machine.gpu_pci;
  plan->outer_launcher = machine.outer_launcher;
  const Result<std::vector<int>> counts = FanOutCounts(plan->env);
  if (!counts.ok()) return counts.status();
  place::Flags flags = plan->options.place;
  if (!counts->empty() && !flags.nproc_per_node) {
    const Result<size_t> index = NodeIndex(plan->env);
    if (!index.ok()) return index.status();
    flags.nproc_per_node = std::to_string((*counts)[std::min(*index, counts->size() - 1)]);
  }
  plan->placement = place::Resolve(plan->env, flags, machine);
  // Unequal nodes: the world is their sum, not this node's count times the nodes.
  if (counts->size() > 1 && counts->size() == plan->placement.nnodes) {
    plan->placement.world_size = std::accumulate(counts->begin(), counts->end(), 0);
  }
  return plan->placement.error.WithCode(Code::kUsage);
}

Status FindToken(LaunchPlan* plan) {
  const auto variable = plan->env.find("LOCKSTEP_TOKEN");
  auto token = LoadToken(plan->options.token_file, variable == plan->env.end() ? "" : variable->second);
  if (!token.ok()) return token.status();
  plan->token = std::move(*token);
  return {};
}

Status FindProgram(LaunchPlan* plan) {
  auto program = ResolveProgram(plan->options, plan->env);
  if (!program.ok()) return program.status();
  plan->program = std::move(*program);
  const auto torch =
      TorchVersion(plan->program.interpreter.empty() ? plan->program.argv[0] : plan->program.interpreter);
  plan->settings.threads = DefaultThreads(plan->cpus, FirstRank(*plan).local_world_size);
  plan->settings.old_torch_names = !plan->options.train_program && (!torch || *torch < kFirstTorchWithoutOldNames);
  plan->store = ChooseStore(plan->options, plan->program, plan->env, torch);
  return {};
}

// A launch settles this while the nodes find each other (agent.cc); a description needs it now.
void TuneNow(LaunchPlan* plan) {
  Tuning::Result tuned = Tuning::Now(*plan);
  plan->settings.tuned = std::move(tuned.apply);
  plan->settings.collect_nccl = tuned.collect_nccl;
  plan->tuned = std::move(tuned.event);
}

Status CheckNested(const LaunchPlan& plan) {
  const int asked = plan.options.place.nproc_per_node ? plan.placement.nproc_per_node.value_or(1) : 1;
  if (asked == 1 && plan.options.place.nnodes.value_or(1) == 1) return {};
  return Status(
      Code::kUsage,
      fmt::format("a launch inside a launch: this process (pid {} on {}) is already a rank started by {}, and "
                  "was asked to start {} of its own",
                  getpid(), plan.host, plan.outer_launcher.empty() ? "another launcher" : plan.outer_launcher,
                  Count(asked, "rank")),
      "use one launcher: drop the outer one, or drop the launch flags here");
}

Status CheckExec(const LaunchPlan& plan) {
  if (plan.placement.level == place::Level::kProcess) return {};
  return Status(Code::kUsage,
                fmt::format("--exec replaces this launcher by one rank, but it was started per node ({} to start)",
                            Count(plan.placement.nproc_per_node.value_or(1), "rank")),
                "drop --exec, or pass --level=process if this really is one rank");
}

}  // namespace

Result<Action> ChooseAction(const LaunchPlan& plan, Purpose purpose) {
  const bool run = purpose == Purpose::kRun;
  if (purpose == Purpose::kExplain || (run && plan.options.dry_run)) return Action::kDescribe;
  if (run && plan.placement.nested) {
    // Never a second layer of ranks below a rank.
    const Status status = CheckNested(plan);
    return status.ok() ? Result<Action>(Action::kExecNested) : status;
  }
  if (plan.placement.starts == place::Starts::kOnce && plan.placement.nnodes.value_or(1) > 1) return Action::kFanOut;
  if (run && plan.options.exec) {
    const Status status = CheckExec(plan);
    return status.ok() ? Result<Action>(Action::kExecRank) : status;
  }
  return Action::kLaunch;
}

Result<Prepared> Prepare(RunOptions asked, Environment env, Purpose purpose, const place::MachineOptions& machine) {
  LaunchPlan plan(std::move(asked), std::move(env));
  const Status placed = Place(&plan, machine);
  if (purpose == Purpose::kExplain) {
    if (plan.placement.error.ok()) plan.placement.error = placed;
    return Prepared{std::move(plan), Action::kDescribe};
  }
  LOCKSTEP_RETURN_IF_ERROR(placed);
  LOCKSTEP_RETURN_IF_ERROR(FindToken(&plan));
  plan.program_error = FindProgram(&plan);
  if (purpose == Purpose::kRun) LOCKSTEP_RETURN_IF_ERROR(plan.program_error);
  const Result<Action> action = ChooseAction(plan, purpose);
  if (!action.ok()) return action.status();
  if (*action == Action::kDescribe && plan.options.tune != Tune::kOff) TuneNow(&plan);
  return Prepared{std::move(plan), *action};
}

}  // namespace lockstep::launch
