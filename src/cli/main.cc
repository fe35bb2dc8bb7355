// `lockstep <command>`: a table of commands, one file each.
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/exit_codes.h"
#include "base/text.h"
#include "cli/commands.h"

namespace {

struct Command {
  const char* name;
  int (*main)(int argc, char** argv);
  const char* help;
};

struct Group {
  const char* title;
  std::vector<Command> commands;
};

const std::vector<Group>& Groups() {
  using namespace lockstep::cli;
  static const std::vector<Group> groups = {
      {"launch",
       {{"run", RunMain, "start, supervise and restart a training program on one node or many"},
        {"explain", ExplainMain, "print which nodes and ranks `run` would start here, and why"},
        {"env", EnvMain, "the same as export lines, for eval in a shell script"},
        {"stop", StopMain, "stop a run"}}},
      {"clusters",
       {{"submit", SubmitMain, "write the job file of a cluster from one short description, and submit it"},
        {"jobs", JobsMain, "list submitted jobs with their states"},
        {"cancel", CancelMain, "end a submitted job"}}},
      {"train and use models",
       {{"train", TrainMain, "train a recipe (taehv, ...) with the native engine, one rank per GPU"},
        {"plan", PlanMain, "memory and time of a training before it starts: what fits, and which choice to take"},
        {"config", EngineMain, "every key of a recipe's configuration, with value and meaning"},
        {"eval", EngineMain, "PSNR, SSIM, LPIPS and temporal consistency of trained weights"},
        {"restore", RestoreMain, "videos deblurred, denoised or enlarged by VRT, any length and size"},
        {"reconstruct", EngineMain, "a video through the autoencoder and back, any length"},
        {"encode", EngineMain, "a video to latents"},
        {"decode", EngineMain, "latents to a video"},
        {"export", EngineMain, "trained weights as safetensors with upstream's names"},
        {"data", EngineMain, "training data: index, statistics and damaged files, speed of each stage, pictures"},
        {"tokens", EngineMain, "text as a packed token file, for the training of a language model"},
        {"cache", CacheMain, "features of frozen encoders: build, list, verify, repair"},
        {"generate", EngineMain, "text that a trained language model writes on from a prompt"}}},
      {"observe",
       {{"runs", RunsMain, "list runs with state and duration"},
        {"watch", WatchMain, "step, time per step, ETA, loss and memory of a run or a log file"},
        {"report", ReportMain, "how a run went, as HTML or Markdown: curves, goodput, restarts, comparison"},
        {"logs", LogsMain, "show or follow the logs of a run or a job"}}},
      {"find what is wrong",
       {{"doctor", DoctorMain, "hardware, preflight of all nodes, cause of a failure, where a job hangs"},
        {"lint", LintMain, "wrong, useless and harmful settings in environments, scripts, manifests"},
        {"tune", TuneMain, "NCCL, Gloo and PyTorch settings for this hardware, each with its reason"},
        {"selftest", SelftestMain, "collectives with known results and their bandwidth, in stages"}}},
      {"other", {{"version", VersionMain, "version, commit, and the licenses of the software inside"}}},
  };
  return groups;
}

const Command* Find(const std::string& name, std::vector<std::string>* names) {
  for (const Group& group : Groups()) {
    for (const Command& command : group.commands) {
      if (name == command.name) return &command;
      names->emplace_back(command.name);
    }
  }
  return nullptr;
}

std::string MainHelp() {
  std::string text =
      "usage: lockstep COMMAND [options]\n\n"
      "Distributed deep-learning training: launcher, training engine and diagnosis.\n";
  for (const Group& group : Groups()) {
    text += fmt::format("\n{}:\n", group.title);
    for (const Command& command : group.commands) text += fmt::format("  {:<13}{}\n", command.name, command.help);
  }
  text +=
      "\nexamples:\n"
      "  lockstep run --nproc-per-node 8 train.py --lr 1e-4     eight ranks on this machine\n"
      "  lockstep run train.py                                  under SLURM, Kubernetes, MPI: ranks from the platform\n"
      "  lockstep train taehv --smoke                           test the training engine on the CPU\n"
      "  lockstep watch latest                                  progress of the newest run\n"
      "  lockstep doctor diagnose slurm-4711.out                why a job failed\n"
      "\n`lockstep help COMMAND` or `lockstep COMMAND --help` describes a command.\n";
  return text;
}

int Unknown(const std::string& name, const std::vector<std::string>& names) {
  fmt::print(stderr, "lockstep: unknown command '{}'{}\n  do: lockstep --help lists the commands\n",
             lockstep::Printable(name), lockstep::DidYouMean(name, names));
  return lockstep::kExitUsage;
}

// `lockstep help doctor hang` is `lockstep doctor hang --help`.
int HelpMain(int argc, char** argv) {
  if (argc < 2) {
    fmt::print("{}", MainHelp());
    return 0;
  }
  std::vector<std::string> names;
  const Command* command = Find(argv[1], &names);
  if (command == nullptr) return Unknown(argv[1], names);
  std::vector<char*> words(argv + 1, argv + argc);
  char flag[] = "--help";
  words.push_back(flag);
  words.push_back(nullptr);
  return command->main(argc, words.data());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", MainHelp());
    return lockstep::kExitUsage;
  }
  const std::string name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") return HelpMain(argc - 1, argv + 1);
  if (name == "--version") return lockstep::cli::VersionMain(argc - 1, argv + 1);
  std::vector<std::string> names;
  if (const Command* command = Find(name, &names)) return command->main(argc - 1, argv + 1);
  if (argc == 2 && (name == "-v" || name == "-V")) {
    fmt::print(stderr, "lockstep: unknown command '{}'\n  do: lockstep version\n", name);
    return lockstep::kExitUsage;
  }
  // A program, or flags for one: the word `run` is missing.
  if (name.starts_with("-") || access(name.c_str(), F_OK) == 0) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    fmt::print(stderr, "lockstep: unknown command '{}'\n  do: lockstep run {}\n", lockstep::Printable(name),
               lockstep::Printable(lockstep::ShellQuote(words), 400));
    return lockstep::kExitUsage;
  }
  return Unknown(name, names);
}
