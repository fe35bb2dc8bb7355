#include "launch/fanout.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "base/fd.h"
#include "base/process.h"

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

// The smallest count in "32(x2),16": what every node can give its launcher.
int SmallestCount(const std::string& text) {
  int smallest = 0;
  size_t at = 0;
  while (at < text.size()) {
    const int count = std::atoi(text.c_str() + at);
    if (count > 0 && (smallest == 0 || count < smallest)) smallest = count;
    const size_t comma = text.find(',', at);
    if (comma == std::string::npos) break;
    at = comma + 1;
  }
  return smallest;
}

}  // namespace

Result<FanOut> PlanFanOut(const RunOptions& options, const place::Environment& env, const place::Placement& placement,
                          const std::string& self) {
  FanOut plan;
  const int nodes = placement.nnodes.value_or(1);
  plan.argv = {"srun",
               fmt::format("--nodes={}", nodes),
               fmt::format("--ntasks={}", nodes),
               "--ntasks-per-node=1",
               "--kill-on-bad-exit=0",
               "--unbuffered",
               "--input=0",
               "--cpu-bind=none",
               "--overlap"};
  if (auto cpus = env.find("SLURM_JOB_CPUS_PER_NODE"); cpus != env.end()) {
    if (const int count = SmallestCount(cpus->second); count > 0) {
      plan.argv.push_back(fmt::format("--cpus-per-task={}", count));
    }
  }
  plan.argv.push_back(self);
  plan.argv.push_back("run");
  plan.argv.insert(plan.argv.end(), options.argv.begin(), options.argv.end());
  for (const auto& [key, value] : env) {
    bool dropped = false;
    for (const char* name : kDropped) dropped = dropped || key == name;
    if (!dropped) plan.env.push_back(key + "=" + value);
  }
  plan.env.push_back(fmt::format("{}=stdin", kControlVariable));
  // What the batch script asked for per node, so that each launcher starts that many ranks.
  if (!placement.nproc_by_node.empty()) {
    plan.env.push_back(fmt::format("LOCKSTEP_NPROC_BY_NODE={}", fmt::join(placement.nproc_by_node, ",")));
  } else if (placement.nproc_explicit && placement.nproc_per_node) {
    plan.env.push_back(fmt::format("LOCKSTEP_NPROC_BY_NODE={}", *placement.nproc_per_node));
  }
  return plan;
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
