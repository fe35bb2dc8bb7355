// `lockstep <command>`: a table of commands, one file each.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"

namespace {

struct Command {
  const char* name;
  int (*main)(int argc, char** argv);
  const char* help;
};

constexpr Command kCommands[] = {
    {"run", lockstep::cli::RunMain, "start, supervise and restart a training program on 1..N nodes"},
    {"train", lockstep::cli::TrainMain, "train a recipe (taehv, ...) with the native engine, under `run`"},
    {"config", lockstep::cli::EngineMain, "every key of a recipe's configuration, with value and meaning"},
    {"eval", lockstep::cli::EngineMain, "measure trained weights on clips: PSNR, SSIM, LPIPS, table and pictures"},
    {"reconstruct", lockstep::cli::EngineMain, "a video through an autoencoder and back, any length"},
    {"encode", lockstep::cli::EngineMain, "a video to latents"},
    {"decode", lockstep::cli::EngineMain, "latents to a video"},
    {"export", lockstep::cli::EngineMain, "trained weights as one file with upstream's names"},
    {"explain", lockstep::cli::ExplainMain, "show what `run` would make of this environment, and why"},
    {"env", lockstep::cli::EnvMain, "the same as export lines, for eval in a shell script"},
    {"runs", lockstep::cli::RunsMain, "list runs with state and duration"},
    {"logs", lockstep::cli::LogsMain, "show or follow the logs of a run"},
    {"watch", lockstep::cli::WatchMain, "step, speed, ETA, loss and memory of a run or a log file, refreshed"},
    {"stop", lockstep::cli::StopMain, "stop a run"},
    {"doctor", lockstep::cli::DoctorMain,
     "examine: hardware, preflight of all nodes, cause of a failure, where a hang is"},
    {"tune", lockstep::cli::TuneMain, "NCCL, Gloo and torch settings from this hardware, each with its reason"},
    {"lint", lockstep::cli::LintMain, "wrong, useless and harmful settings in an environment, script or manifest"},
    {"selftest", lockstep::cli::SelftestMain, "collectives with known answers and their bandwidth, in stages"},
    {"version", lockstep::cli::VersionMain, "version, commit, and the licenses of the software inside"},
};

std::string Help() {
  std::string text =
      "lockstep: distributed training, from the launch to the last checkpoint\n\n"
      "usage: lockstep COMMAND [options]\n\ncommands:\n";
  for (const Command& command : kCommands) text += fmt::format("  {:<13}{}\n", command.name, command.help);
  text +=
      "\nexamples:\n"
      "  lockstep run --nproc-per-node 8 train.py --lr 1e-4     eight ranks on this machine\n"
      "  lockstep run train.py                                  under SLURM, Kubernetes, MPI: ranks from the platform\n"
      "  lockstep explain                                       who am I here, and how do you know?\n"
      "  lockstep logs -f latest --rank 0                       follow rank 0 of the newest run\n"
      "  lockstep watch latest                                  how far it is, how fast, when it will be done\n"
      "\n`lockstep COMMAND --help` tells more about each.\n";
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", Help());
    return 2;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    fmt::print("{}", Help());
    return 0;
  }
  if (name == "--version") return lockstep::cli::VersionMain(argc - 1, argv + 1);
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.main(argc - 1, argv + 1);
    names.emplace_back(command.name);
  }
  // A program, or flags for one: the word `run` is missing.
  const bool runs = name.starts_with("-") || access(name.c_str(), F_OK) == 0;
  const std::vector<std::string> words(argv + 1, argv + argc);
  fmt::print(stderr, "lockstep: unknown command '{}'{}\n  do: {}\n", lockstep::Printable(name),
             runs ? "" : lockstep::DidYouMean(name, names),
             runs ? "lockstep run " + lockstep::Printable(lockstep::ShellQuote(words), 400)
                  : "lockstep --help lists the commands");
  return 2;
}
