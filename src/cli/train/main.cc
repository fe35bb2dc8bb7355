// `lockstep-train <command>`: the training engine and its recipes, on LibTorch. Started by `lockstep` for the commands
// it does not answer itself, or as a rank by any launcher that says who is who.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "base/exit_codes.h"
#include "base/own_program.h"
#include "base/status.h"
#include "cli/train/commands.h"
#include "hardware/cpu_share.h"
#include "recipes/registry.h"

namespace {

struct Command {
  const char* name;
  int (*main)(int argc, char** argv);
  const char* help;
};

constexpr Command kCommands[] = {
    {"train", lockstep::cli::TrainMain, "RECIPE [options]: one rank of a training (see `lockstep train --help`)"},
    {"config", lockstep::cli::ConfigMain, "RECIPE: every key of its configuration"},
    {"eval", lockstep::cli::EvalMain, "RECIPE --weights F: scores of trained weights on clips"},
    {"reconstruct", lockstep::cli::ReconstructMain,
     "--weights F INPUT OUTPUT: a video through an autoencoder and back"},
    {"encode", lockstep::cli::EncodeMain, "--weights F INPUT OUTPUT: a video to latents"},
    {"decode", lockstep::cli::DecodeMain, "--weights F INPUT OUTPUT: latents to a video"},
    {"export", lockstep::cli::ExportMain, "--weights F OUTPUT: trained weights as one file with upstream's names"},
    {"selftest", lockstep::cli::SelftestMain, "--out DIR: one rank of `lockstep selftest`"},
};

void Help(std::FILE* to) {
  fmt::print(to, "usage: lockstep-train COMMAND ...\n\ncommands:\n");
  for (const Command& command : kCommands) fmt::print(to, "  {:<12} {}\n", command.name, command.help);
  fmt::print(to, "  --licenses   notices and license texts of the software inside\n");
  fmt::print(to, "  --version    [--json]: this build, its torch and CUDA, the GPUs it sees\n\nrecipes:\n");
  for (const std::string& name : lockstep::recipes::RecipeNames()) {
    auto recipe = lockstep::recipes::MakeRecipe(name);
    fmt::print(to, "  {:<12} {}\n", name, (*recipe)->help());
  }
}

// LibTorch's OpenMP runtime reads the environment while it is loaded, before main(). `lockstep` sets it for its ranks;
// started by another launcher, the program sets it and executes itself once more: same process, same arguments.
void StartAgainWithSleepingThreads(char** argv) {
  if (!lockstep::hardware::LetWaitingThreadsSleep()) return;
  execv(lockstep::OwnExecutable("/proc/self/exe").c_str(), argv);
  execv("/proc/self/exe", argv);  // the file was replaced meanwhile
  fmt::print(stderr, "lockstep-train: cannot start again with OMP_WAIT_POLICY=PASSIVE: {}; threads will spin\n",
             lockstep::ErrnoText(errno));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (!name.empty() && !name.starts_with("-")) StartAgainWithSleepingThreads(argv);
  for (const Command& command : kCommands) {
    if (name == command.name) return command.main(argc - 1, argv + 1);
  }
  if (name == "--licenses") return lockstep::cli::LicensesMain();
  if (name == "--version" || name == "version") return lockstep::cli::VersionMain(argc - 1, argv + 1);
  Help(name == "--help" ? stdout : stderr);
  return name == "--help" ? lockstep::kExitOk : lockstep::kExitUsage;
}
