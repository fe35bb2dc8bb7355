// `lockstep cancel`: ends submitted jobs through the platform's client.
#include <fmt/format.h>

#include <algorithm>

#include "base/exit_codes.h"
#include "base/text.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/job_lookup.h"
#include "submit/client.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMostOthers = 5;  // that are asked for one by one

// A name stands for the newest job; those that go on all the same are not passed over in silence.
void NameOthersAtWork(const FoundJob& job, const Environment& env) {
  for (size_t i = 0; i < std::min(kMostOthers, job.others.size()); ++i) {
    const submit::JobRecord& other = job.others[i];
    const Result<const submit::Platform*> platform = submit::FindPlatform(other.platform);
    if (!platform.ok()) continue;
    const submit::JobState state = submit::Client(**platform, env).Show(other);
    if (state.state != "pending" && state.state != "running") continue;
    const std::string space = other.name_space.empty() ? "" : fmt::format(" --namespace {}", other.name_space);
    fmt::print(stderr,
               "lockstep cancel: another job '{}' is {}, and is not cancelled: lockstep cancel --platform {}{} {}\n",
               Printable(other.name), state.state, other.platform, space, Printable(other.id));
  }
}

}  // namespace

int CancelMain(int argc, char** argv) {
  Arguments args("Ends submitted jobs, waiting or running. Ranks get SIGTERM first and can save their state.",
                 "cancel");
  std::vector<std::string> which;
  std::string platform, name_space;
  bool dry_run = false;
  args.Option("JOB", &which, "name or id of a job").Required();
  args.Option("--platform", &platform, "platform of an id that was submitted elsewhere").Named("NAME");
  args.Option("--namespace", &name_space, "namespace of Kubernetes").Named("NAME");
  args.Flag("--dry-run", &dry_run, "print which jobs, and end none");
  args.Footer(
      "A run that was started by hand is stopped by `lockstep stop`.\n\n"
      "examples:\n"
      "  lockstep cancel taehv-night\n"
      "  lockstep cancel --platform slurm 4711 4712");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  const Environment env = CurrentEnvironment();
  int worst = 0;
  for (const std::string& one : which) {
    Result<FoundJob> job = FindJob(one, platform, name_space, env);
    if (!job.ok()) {
      worst = std::max(worst, Complain("cancel", job.status()));
      continue;
    }
    if (dry_run) {
      fmt::print("would cancel {} on {} ({})\n", Printable(job->record.name), job->platform->what,
                 Printable(job->record.id));
      continue;
    }
    const Status status = submit::Client(*job->platform, env).Cancel(job->record);
    if (status.ok()) {
      fmt::print("cancelled {} on {} ({})\n", Printable(job->record.name), job->platform->what,
                 Printable(job->record.id));
    } else {
      worst = std::max(worst, Complain("cancel", status));
    }
    NameOthersAtWork(*job, env);
  }
  return worst;
}

}  // namespace lockstep::cli
