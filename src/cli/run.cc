// `lockstep run`: parse, resolve, check; then hand over to launch/.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/own_program.h"
#include "base/process.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/resolve_plan.h"
#include "cli/run_flags.h"
#include "launch/fanout.h"
#include "launch/launcher.h"
#include "launch/report.h"
#include "launch/torch_version.h"
#include "launch/tuning.h"
#include "launch/worker_env.h"
#include "place/machine.h"
#include "preflight/gate.h"

namespace lockstep::cli {
namespace {

// --json promises one document on stdout, also when nothing could be started.
int Fail(const Status& status, bool json) {
  fmt::print(stderr, "lockstep run: {}\n", status.ToString());
  if (json) {
    fmt::print("{}\n", launch::RefusalJson(status).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return ExitCode(status);
}

// Replaces this process by the program, with the environment of its rank. Returns only on failure.
int Exec(const launch::LaunchPlan& plan, bool set_identity) {
  std::vector<std::string> env;
  if (set_identity) {
    const place::Placement& p = plan.placement;
    launch::WorkerIdentity who;
    who.rank = p.rank.value_or(0);
    who.local_rank = p.local_rank.value_or(0);
    who.world_size = p.world_size.value_or(1);
    who.local_world_size = p.local_world_size.value_or(1);
    who.node_rank = p.node_rank.value_or(0);
    who.nnodes = p.nnodes.value_or(1);
    who.master_addr = p.master_addr.value_or("127.0.0.1");
    who.master_port = p.master_port.value_or(29500);
    who.run_id = p.job_id;
    auto made = launch::WorkerEnvironment(
        who, plan.env, plan.options, plan.program.env,
        {launch::DefaultThreads(plan.cpus, who.local_world_size), plan.program.old_torch_names});
    if (!made.ok()) return Fail(made.status(), plan.options.json);
    env = std::move(*made);
  } else {
    for (const auto& [key, value] : plan.env) {
      if (!plan.program.env.count(key)) env.push_back(key + "=" + value);
    }
    for (const auto& [key, value] : plan.program.env) {
      if (value) env.push_back(key + "=" + *value);
    }
  }
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const auto& word : plan.program.argv) argv.push_back(const_cast<char*>(word.c_str()));
  for (const auto& entry : env) envp.push_back(const_cast<char*>(entry.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  if (!plan.program.workdir.empty() && chdir(plan.program.workdir.c_str()) != 0) {
    return Fail(Status(Code::kEnvironment, "--workdir " + plan.program.workdir + ": " + ErrnoText(errno)),
                plan.options.json);
  }
  execve(argv[0], argv.data(), envp.data());
  return Fail(Status(Code::kEnvironment, fmt::format("cannot start {}: {}", plan.program.argv[0], ErrnoText(errno))),
              plan.options.json);
}

}  // namespace

int RunMain(int argc, char** argv) {
  launch::LaunchPlan plan;
  plan.env = place::CurrentEnvironment();
  auto flags = ParseRunFlags(argc, argv, plan.env, ParseMode::kRun);
  if (!flags.ok()) {
    // The flags could not be read, so whether --json was one of them is judged by its mere presence.
    return Fail(flags.status(),
                std::any_of(argv, argv + argc, [](const char* word) { return !strcmp(word, "--json"); }));
  }
  if (flags->print_and_exit) {
    fmt::print("{}", flags->text);
    return 0;
  }
  for (const std::string& warning : flags->warnings) fmt::print(stderr, "lockstep: warning: {}\n", warning);
  plan.options = std::move(flags->options);
  place::Machine machine;
  if (const Status placed = ResolvePlacement(&plan, &machine); !placed.ok()) return Fail(placed, plan.options.json);

  auto program = launch::ResolveProgram(plan.options, plan.env);
  if (!program.ok()) return Fail(program.status(), plan.options.json);
  plan.program = std::move(*program);
  // PyTorch 2.10 warns about the old names on every rank.
  const auto torch =
      launch::TorchVersion(plan.program.interpreter.empty() ? plan.program.argv[0] : plan.program.interpreter);
  plan.program.old_torch_names = !plan.options.runs_engine() && (!torch || *torch < std::pair{2, 10});
  plan.store = launch::ChooseStore(plan.options, plan.program, plan.env, torch);
  if (const Status token = ResolveToken(&plan); !token.ok()) return Fail(token, plan.options.json);

  if (plan.options.dry_run) {
    if (plan.options.tune != launch::Tune::kOff) {
      launch::Tuning::Result tuned = launch::Tuning::Now(plan);
      plan.options.tuned = std::move(tuned.apply);
      plan.options.collect_nccl = tuned.collect_nccl;
      plan.tuned = std::move(tuned.event);
    }
    fmt::print("{}", launch::DescribePlan(plan, plan.options.json));
    return 0;
  }
  if (plan.placement.nested) {
    // Already one rank of another launcher: run the program as that rank, and never start a second layer of ranks.
    const int asked = plan.options.place.nproc_per_node ? plan.placement.nproc_per_node.value_or(1) : 1;
    if (asked > 1 || plan.options.place.nnodes.value_or(1) > 1) {
      const std::string outer = machine.outer_launcher.empty() ? "another launcher" : machine.outer_launcher;
      return Fail(
          Status(Code::kUsage,
                 fmt::format("a launch inside a launch: this process (pid {} on {}) is already a rank started by "
                             "{}, and was asked to start {} of its own",
                             getpid(), machine.host, outer, Count(asked, "rank")),
                 "use one launcher: drop the outer one, or drop the launch flags here"),
          plan.options.json);
    }
    return Exec(plan, /*set_identity=*/false);
  }
  if (plan.placement.starts == place::Starts::kOnce && plan.placement.nnodes.value_or(1) > 1) {
    auto fan_out = launch::PlanFanOut(plan.options, plan.env, plan.placement, OwnExecutable("lockstep"));
    if (!fan_out.ok()) return Fail(fan_out.status(), plan.options.json);
    if (!plan.options.quiet) {
      fmt::print(stderr, "lockstep: {} was started once for {} nodes; starting one launcher per node through srun\n",
                 plan.placement.platform, *plan.placement.nnodes);
    }
    return launch::RunFanOut(*fan_out);
  }
  if (plan.options.exec) {
    if (plan.placement.level != place::Level::kProcess) {
      return Fail(
          Status(Code::kUsage,
                 fmt::format("--exec replaces this launcher by one rank, but it was started per node ({} to start)",
                             Count(plan.placement.nproc_per_node.value_or(1), "rank")),
                 "drop --exec, or pass --level=process if this really is one rank"),
          plan.options.json);
    }
    return Exec(plan, /*set_identity=*/true);
  }
  if (!plan.options.preflight.empty()) {
    if (const int code = preflight::Gate(plan); code != 0) return code;
  }
  return launch::Launch(std::move(plan));
}

}  // namespace lockstep::cli
