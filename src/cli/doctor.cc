// `lockstep doctor <what>`: a table of examinations, one file each.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/text.h"
#include "cli/commands.h"

namespace lockstep::cli {
namespace {

struct Examination {
  const char* name;
  int (*main)(int argc, char** argv);
  const char* help;
};

constexpr Examination kExaminations[] = {
    {"hardware", DoctorHardwareMain, "GPUs, InfiniBand, interfaces, NUMA, limits and libraries of this machine"},
    {"preflight", DoctorPreflightMain, "checks before a job, of this node or of all its nodes together"},
    {"diagnose", DoctorDiagnoseMain, "why a run failed: cause, rank, evidence, remedy"},
    {"hang", DoctorHangMain, "where every rank of a run is, and which one the others wait for"},
};

std::string DoctorHelp() {
  std::string text = "usage: lockstep doctor WHAT [options]\n\nexaminations:\n";
  for (const Examination& row : kExaminations) text += fmt::format("  {:<13}{}\n", row.name, row.help);
  text +=
      "\nexamples:\n"
      "  lockstep doctor hardware --json\n"
      "  srun --ntasks-per-node 1 lockstep doctor preflight\n"
      "  lockstep doctor diagnose runs/latest slurm-4711.out\n"
      "\n`lockstep doctor WHAT --help` tells more about each.\n";
  return text;
}

}  // namespace

int DoctorMain(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "--help" || name == "-h") {
    fmt::print(name.empty() ? stderr : stdout, "{}", DoctorHelp());
    return name.empty() ? kExitUsage : kExitOk;
  }
  std::vector<std::string> names;
  for (const Examination& row : kExaminations) {
    if (name == row.name) return row.main(argc - 1, argv + 1);
    names.emplace_back(row.name);
  }
  fmt::print(stderr, "lockstep: doctor knows no '{}'{}\n  do: lockstep doctor --help lists what it examines\n", name,
             DidYouMean(name, names));
  return kExitUsage;
}

}  // namespace lockstep::cli
