// `lockstep run`: parse, prepare, act; all three by others.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/own_program.h"
#include "cli/commands.h"
#include "cli/run_flags.h"
#include "launch/exec.h"
#include "launch/fanout.h"
#include "launch/launcher.h"
#include "launch/prepare.h"
#include "launch/report.h"
#include "preflight/gate.h"

namespace lockstep::cli {
namespace {

// --json promises one document on stdout, also when nothing could be started.
int FailRun(const Status& status, bool json) {
  fmt::print(stderr, "lockstep run: {}\n", status.ToString());
  if (json) {
    fmt::print("{}\n", launch::RefusalJson(status).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return ExitCode(status);
}

// Started once for several nodes: one launcher on each, through srun.
Result<int> FanOutRun(const launch::LaunchPlan& plan) {
  auto fan_out = launch::PlanFanOut(plan, {OwnExecutable("lockstep"), "run"});
  if (!fan_out.ok()) return fan_out.status();
  if (!plan.options.quiet) {
    fmt::print(stderr, "lockstep: {} was started once for {} nodes; starting one launcher per node through srun\n",
               plan.placement.platform, *plan.placement.nnodes);
  }
  return launch::RunFanOut(*fan_out);
}

// The exit code; an error where this process should have become another one.
Result<int> Act(launch::Prepared prepared) {
  launch::LaunchPlan& plan = prepared.plan;
  switch (prepared.action) {
    case launch::Action::kDescribe:
      fmt::print("{}", launch::DescribePlan(plan, plan.options.json));
      return 0;
    case launch::Action::kExecNested:
      return launch::ExecNested(plan);
    case launch::Action::kExecRank:
      return launch::ExecRank(plan);
    case launch::Action::kFanOut:
      return FanOutRun(plan);
    case launch::Action::kLaunch:
      break;
  }
  if (!plan.options.preflight.empty()) {
    if (const int code = preflight::Gate(plan); code != 0) return code;
  }
  return launch::Launch(std::move(plan));
}

}  // namespace

int RunMain(int argc, char** argv) {
  Environment env = CurrentEnvironment();
  auto flags = ParseRunFlags(argc, argv, env, ParseMode::kRun);
  if (!flags.ok()) {
    // The flags could not be read, so whether --json was one of them is judged by its mere presence.
    return FailRun(flags.status(),
                   std::any_of(argv, argv + argc, [](const char* word) { return !strcmp(word, "--json"); }));
  }
  if (flags->print_and_exit) {
    fmt::print("{}", flags->text);
    return 0;
  }
  for (const std::string& warning : flags->warnings) fmt::print(stderr, "lockstep: warning: {}\n", warning);
  const bool json = flags->options.json;
  auto prepared = launch::Prepare(std::move(flags->options), std::move(env), launch::Purpose::kRun);
  if (!prepared.ok()) return FailRun(prepared.status(), json);
  const Result<int> code = Act(std::move(*prepared));
  return code.ok() ? *code : FailRun(code.status(), json);
}

}  // namespace lockstep::cli
