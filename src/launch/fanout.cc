#include "launch/fanout.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/exit_codes.h"
#include "base/fd.h"
#include "base/process.h"
#include "place/slurm_nodelist.h"

namespace lockstep::launch {
namespace {

// Inherited by srun and meant for the batch script's tasks, not for one launcher per node.
constexpr const char* kDropped[] = {"SLURM_NTASKS",          "SLURM_NPROCS",
                                    "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                                    "SLURM_GPUS_PER_TASK",   "SLURM_TRES_PER_TASK",
                                    "SLURM_CPUS_PER_TASK",   "SLURM_DISTRIBUTION",
                                    "SLURM_NTASKS_PER_GPU",  "SLURM_NTASKS_PER_SOCKET",
                                    "SLURM_NTASKS_PER_CORE", "SLURM_CPU_BIND",
                                    "SLURM_GPU_BIND",        "SLURM_THREADS_PER_CORE"};

// What every node can give its launcher: the smallest count of SLURM's list ("32(x2),16"); 0: SLURM does not tell.
Result<int> CpusPerLauncher(const Environment& env) {
  constexpr char kVariable[] = "SLURM_JOB_CPUS_PER_NODE";
  const auto list = env.find(kVariable);
  if (list == env.end() || list->second.empty()) return 0;
  const auto counts = place::ExpandTaskCounts(list->second);
  if (!counts.ok()) return counts.status().Context(kVariable).WithHint("SLURM sets it; unset or correct it");
  return counts->empty() ? 0 : *std::min_element(counts->begin(), counts->end());
}

}  // namespace

Result<FanOut> PlanFanOut(const LaunchPlan& plan, const std::vector<std::string>& command) {
  FanOut out;
  const place::Placement& placement = plan.placement;
  const int nodes = placement.nnodes.value_or(1);
  out.argv = {"srun",
              fmt::format("--nodes={}", nodes),
              fmt::format("--ntasks={}", nodes),
              "--ntasks-per-node=1",
              "--kill-on-bad-exit=0",
              "--unbuffered",
              "--input=0",
              "--cpu-bind=none",
              "--overlap"};
  const Result<int> cpus = CpusPerLauncher(plan.env);
  if (!cpus.ok()) return cpus.status();
  if (*cpus > 0) out.argv.push_back(fmt::format("--cpus-per-task={}", *cpus));
  out.argv.insert(out.argv.end(), command.begin(), command.end());
  out.argv.insert(out.argv.end(), plan.options.argv.begin(), plan.options.argv.end());
  for (const auto& [key, value] : plan.env) {
    const bool dropped = std::find(std::begin(kDropped), std::end(kDropped), key) != std::end(kDropped);
    if (!dropped) out.env.push_back(key + "=" + value);
  }
  out.env.push_back(fmt::format("{}=stdin", kControlVariable));
  // What the batch script asked for per node, so that each launcher starts that many ranks.
  if (!placement.nproc_by_node.empty()) {
    out.env.push_back(fmt::format("{}={}", kCountsVariable, fmt::join(placement.nproc_by_node, ",")));
  } else if (placement.nproc_explicit && placement.nproc_per_node) {
    out.env.push_back(fmt::format("{}={}", kCountsVariable, *placement.nproc_per_node));
  }
  return out;
}

int RunFanOut(const FanOut& plan) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  int control[2];
  if (pipe2(control, O_CLOEXEC) != 0) {
    fmt::print(stderr, "lockstep: pipe: {}\n", ErrnoText(errno));
    return kExitEnvironment;
  }
  UniqueFd control_read(control[0]);
  UniqueFd control_write(control[1]);
  ::signal(SIGPIPE, SIG_IGN);
  SpawnOptions options;
  options.argv = plan.argv;
  options.env = plan.env;
  options.stdin_fd = control_read.get();
  auto process = Spawn(options);
  if (!process.ok()) {
    fmt::print(stderr, "lockstep: {}\n", process.status().ToString());
    return ExitCode(process.status());
  }
  while (true) {
    siginfo_t info{};
    const int signal = sigwaitinfo(&set, &info);
    if (signal == SIGCHLD) {
      if (const auto status = TryWait(process->pid))
        return status->signal != 0 ? ExitOfSignal(status->signal) : status->code;
    } else if (signal == SIGUSR1 || signal == SIGUSR2) {
      SignalProcess(*process, signal);  // these srun passes to every launcher
    } else if (signal > 0) {
      const char byte = static_cast<char>(signal);
      (void)!write(control_write.get(), &byte, 1);
    }
  }
}

}  // namespace lockstep::launch
