// `lockstep doctor preflight`: run's own placement flags and a few of its own; then preflight/.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/environment.h"
#include "base/own_program.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flag_engine.h"
#include "cli/run_flags.h"
#include "launch/fanout.h"
#include "launch/prepare.h"
#include "preflight/gate.h"
#include "preflight/preflight.h"
#include "preflight/progress.h"
#include "preflight/report.h"

namespace lockstep::cli {
namespace {

constexpr char kCommand[] = "doctor preflight";

// The flags that `run` does not have; all others are run's and mean the same.
struct Own {
  const char* name;
  const char* value;  // nullptr: a switch
  const char* help;
};

constexpr Own kOwn[] = {
    {"--data", "PATH", "Data that must be readable and the same on every node (repeatable)."},
    {"--checkpoint-dir", "DIR", "Where checkpoints will be written."},
    {"--config", "FILE", "Configuration that must be the same on every node (repeatable)."},
    {"--program", "SCRIPT", "The program; the same as naming it last, as `run` does."},
    {"--code", "DIR", "Code that must be the same on every node. Default: the program's folder."},
    {"--checks", "LIST", "Only these checks: ids, or beginnings such as gpu or same."},
    {"--skip", "LIST", "All but these."},
    {"--full", nullptr, "All pairs, longer streams, longer lists of files."},
    {"--list", nullptr, "List the checks and end."},
    {"--timeout", "DURATION", "How long to wait for the other nodes. Default: 60s."},
};

std::string List() {
  std::string text;
  for (const preflight::Check& check : preflight::Checks()) {
    text += fmt::format("  {:<15} {:<10} {}\n", check.id,
                        check.needs == preflight::Needs::kOneNode ? "each node" : "all nodes", check.what);
  }
  return text;
}

std::string PreflightHelp() {
  std::string text =
      "usage: lockstep doctor preflight [options] [flags of run] [PROGRAM ...]\n\n"
      "Is everything in place? Examines this node and, started on every node of a job the way the job would be, all "
      "of\n"
      "them together: their rendezvous is at the job's own master address and port. Every failed check says what to "
      "do.\n"
      "Exit code: 0 fine (warnings allowed), 3 a check failed, 4 the rendezvous failed.\n\noptions:\n";
  for (const Own& own : kOwn) {
    text += fmt::format("  {:<28} {}\n",
                        fmt::format("{}{}{}", own.name, own.value ? " " : "", own.value ? own.value : ""), own.help);
  }
  text +=
      "  --json                       One JSON document on stdout.\n"
      "\nFlags of run that matter here: --nnodes, --node-rank, --nproc-per-node, --master-addr, --master-port,\n"
      "--rdzv-endpoint, --port-range, --token-file, --log-dir, --venv, --conda, --gpus, --env (lockstep run --help).\n"
      "\nchecks:\n" +
      List() +
      "\nexamples:\n"
      "  lockstep doctor preflight train.py\n"
      "  lockstep doctor preflight --nnodes 2 --node-rank 0 --master-addr host0 --data /data/set1 train.py\n"
      "  srun -N4 --ntasks-per-node=1 lockstep doctor preflight --checkpoint-dir /scratch/ckpt train.py\n"
      "  lockstep doctor preflight --checks gpu,shm --json\n"
      "  lockstep run --preflight train.py              the same as a gate before the job\n";
  return text;
}

struct PreflightFlags {
  launch::RunOptions run;
  preflight::Options options;
  bool print_and_exit = false;
  std::string text;
};

Status Take(const Own& own, const std::string& value, PreflightFlags* asked, std::string* program) {
  const std::string name = own.name;
  preflight::Options& options = asked->options;
  const auto words = [&](std::vector<std::string>* into) {
    for (const std::string& word : Split(value, ',')) {
      if (const std::string id(Trim(word)); !id.empty()) into->push_back(id);
    }
  };
  if (name == "--data") {
    options.data.push_back(value);
  } else if (name == "--checkpoint-dir") {
    options.checkpoint_dir = value;
  } else if (name == "--config") {
    options.configs.push_back(value);
  } else if (name == "--program") {
    *program = value;
  } else if (name == "--code") {
    options.code = value;
  } else if (name == "--checks") {
    words(&options.selection.only);
  } else if (name == "--skip") {
    words(&options.selection.skip);
  } else if (name == "--full") {
    options.full = true;
  } else if (name == "--list") {
    asked->print_and_exit = true;
    asked->text = List();
  } else if (name == "--timeout") {
    auto limit = ParseDuration(value, BareNumber::kSeconds);
    if (!limit.ok()) return limit.status().Context("--timeout");
    options.timeout = *limit;
  }
  return {};
}

// Our flags are taken out of the line, the rest is run's.
Result<PreflightFlags> Parse(int argc, char** argv, const Environment& env) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  std::vector<FlagSpec> specs;
  for (const Own& own : kOwn) {
    specs.push_back({.name = own.name, .aliases = {}, .takes_value = own.value != nullptr, .first_class = true});
  }
  auto scanned = SplitRunFlags(specs, args, fmt::format("see lockstep {} --help", kCommand));
  if (!scanned.ok()) return scanned.status();
  PreflightFlags asked;
  std::vector<std::string> rest{"preflight"};
  rest.insert(rest.end(), scanned->run.begin(), scanned->run.end());
  std::string program;
  for (const ScannedFlag& flag : scanned->own) {
    LOCKSTEP_RETURN_IF_ERROR(Take(kOwn[flag.index], flag.value, &asked, &program));
    if (asked.print_and_exit) return asked;
  }
  if (scanned->help) {
    asked.print_and_exit = true;
    asked.text = PreflightHelp();
    return asked;
  }
  if (scanned->program && !program.empty()) {
    return Status(Code::kUsage, fmt::format("two programs: --program {} and {}", program, *scanned->program),
                  "name it once");
  }
  if (scanned->program) program = *scanned->program;
  if (!program.empty()) {
    rest.insert(rest.end(), {"--", program});
    rest.insert(rest.end(), scanned->args.begin(), scanned->args.end());
  }
  std::vector<char*> words;
  for (std::string& word : rest) words.push_back(word.data());
  auto flags = ParseRunFlags(static_cast<int>(words.size()), words.data(), env, ParseMode::kExplain);
  if (!flags.ok()) return flags.status();
  if (flags->print_and_exit) {
    asked.print_and_exit = true;
    asked.text = flags->text;
    return asked;
  }
  for (const std::string& warning : flags->warnings) fmt::print(stderr, "lockstep: warning: {}\n", warning);
  asked.run = std::move(flags->options);
  asked.run.argv = args;  // for starting this on every node
  LOCKSTEP_RETURN_IF_ERROR(preflight::CheckSelection(asked.options.selection));
  return asked;
}

// One command for many nodes (a SLURM batch script): become the srun that starts it on each.
Status FanOutPreflight(const launch::LaunchPlan& plan) {
  auto fan_out = launch::PlanFanOut(plan, {OwnExecutable("lockstep"), "doctor", "preflight"});
  if (!fan_out.ok()) return fan_out.status();
  std::vector<char*> argv, env;
  for (std::string& text : fan_out->argv) argv.push_back(text.data());
  for (std::string& text : fan_out->env) env.push_back(text.data());
  argv.push_back(nullptr);
  env.push_back(nullptr);
  execvpe(argv[0], argv.data(), env.data());
  return Status(Code::kEnvironment, fmt::format("cannot start {}: {}", argv[0], ErrnoText(errno)),
                "start this command once on every node instead");
}

}  // namespace

int DoctorPreflightMain(int argc, char** argv) {
  const Environment env = CurrentEnvironment();
  auto asked = Parse(argc, argv, env);
  if (!asked.ok()) return Complain(kCommand, asked.status());
  if (asked->print_and_exit) {
    fmt::print("{}", asked->text);
    return 0;
  }
  preflight::Options& options = asked->options;
  auto prepared = launch::Prepare(std::move(asked->run), env, launch::Purpose::kPreflight);
  if (!prepared.ok()) return Complain(kCommand, prepared.status());
  const launch::LaunchPlan& plan = prepared->plan;
  if (prepared->action == launch::Action::kFanOut) return Complain(kCommand, FanOutPreflight(plan));
  const std::vector<std::string> configs = preflight::ConfigArguments(plan);
  options.configs.insert(options.configs.end(), configs.begin(), configs.end());
  preflight::Progress progress;
  preflight::PreflightReport report = preflight::Run(plan, options, progress.Events());
  progress.Clear();
  if (plan.options.json) {
    fmt::print("{}\n", Document(report).dump(2, ' ', false, preflight::Json::error_handler_t::replace));
  } else if (report.index == 0 || !report.rendezvous.ok()) {
    fmt::print("{}", ReportText(report, /*table=*/true, UseColour(STDOUT_FILENO)));
  } else {
    // Node 0 tells it all; elsewhere a line is enough.
    fmt::print("preflight: {} (node 0 has the table)\n", Headline(report));
  }
  std::fflush(stdout);
  // Threads left behind in a hung file system must not hold up the end.
  _exit(report.exit_code());
}

}  // namespace lockstep::cli
