#include "cli/train/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/exit_codes.h"
#include "base/own_program.h"
#include "base/status.h"
#include "base/version.h"
#include "cli/train/commands.h"
#include "engine/recipe.h"
#include "hardware/cpu_share.h"

namespace lockstep {

// Of the library this file is in (cmake/version.cmake). Named here, so that the linker takes it from there for a
// program of any project: base/version.cc's weak declaration alone takes nothing from a library.
extern const char kBuildCommit[];
[[gnu::used]] static const char* const kCommitOfTheEngine = kBuildCommit;

namespace {

using cli::Program;

// A command that needs no recipes.
template <int (*kMain)(int argc, char** argv)>
int Plain(const Program& /*program*/, int argc, char** argv) {
  return kMain(argc, argv);
}

struct Command {
  const char* name;
  int (*main)(const Program& program, int argc, char** argv);
  const char* help;
};

constexpr Command kCommands[] = {
    {"train", cli::TrainMain, "RECIPE [options]: one rank of a training (see `lockstep train --help`)"},
    {"config", cli::ConfigMain, "RECIPE: every key of its configuration"},
    {"plan-model", cli::PlanModelMain, "RECIPE: its model and training as numbers, for `lockstep plan`"},
    {"plan-measure", Plain<cli::PlanMeasureMain>, "speeds of this machine, for `lockstep plan --measure`"},
    {"cache-build", cli::CacheBuildMain, "[RECIPE]: one process of `lockstep cache build`"},
    {"eval", cli::EvalMain, "RECIPE --weights F: scores of trained weights on clips"},
    {"reconstruct", Plain<cli::ReconstructMain>, "--weights F INPUT OUTPUT: a video through an autoencoder and back"},
    {"encode", Plain<cli::EncodeMain>, "--weights F INPUT OUTPUT: a video to latents"},
    {"decode", Plain<cli::DecodeMain>, "--weights F INPUT OUTPUT: latents to a video"},
    {"restore", Plain<cli::RestoreMain>, "--weights F INPUT OUTPUT: a video restored by VRT"},
    {"export", Plain<cli::ExportMain>, "--weights F OUTPUT: trained weights as one file with upstream's names"},
    {"data", cli::DataMain,
     "index|stat|bench|show|prepare PATH: what data hold, how fast they are read, how they look"},
    {"tokens", Plain<cli::TokensMain>, "SOURCE --out FILE: text as a packed token file"},
    {"generate", Plain<cli::GenerateMain>, "MODEL --prompt TEXT: what a language model writes on"},
    {"selftest", Plain<cli::SelftestMain>, "--out DIR: one rank of `lockstep selftest`"},
};

void Help(const Program& program, std::FILE* to) {
  fmt::print(to, "usage: {} COMMAND ...\n\ncommands:\n", program.name);
  for (const Command& command : kCommands) fmt::print(to, "  {:<12} {}\n", command.name, command.help);
  fmt::print(to, "  --licenses   notices and license texts of the software inside\n");
  fmt::print(to, "  --version    [--json]: this build, its torch and CUDA, the GPUs it sees\n\nrecipes:\n");
  for (const std::string& name : program.recipes.Names()) {
    auto recipe = program.recipes.Make(name);
    fmt::print(to, "  {:<12} {}\n", name, (*recipe)->help());
  }
}

// What `lockstep train --program` asks before it starts the program as ranks. Touches no GPU.
int Identify(const Program& program) {
  nlohmann::json said = VersionJson(program.name);
  said["recipes"] = program.recipes.Names();
  fmt::print("{}\n", nlohmann::json({{kTrainProgramKey, said}}).dump());
  return kExitOk;
}

// LibTorch's OpenMP runtime reads the environment while it is loaded, before main(). `lockstep` sets it for its ranks;
// started by another launcher, the program sets it and executes itself once more: same process, same arguments.
void StartAgainWithSleepingThreads(const Program& program, char** argv) {
  if (!hardware::LetWaitingThreadsSleep()) return;
  execv(OwnExecutable("/proc/self/exe").c_str(), argv);
  execv("/proc/self/exe", argv);  // the file was replaced meanwhile
  fmt::print(stderr, "{}: cannot start again with OMP_WAIT_POLICY=PASSIVE: {}; threads will spin\n", program.name,
             ErrnoText(errno));
}

std::string FileName(int argc, char** argv) {
  const std::string path = argc > 0 ? argv[0] : "";
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.empty() ? kEngineName : name;
}

}  // namespace

int TrainProgram(int argc, char** argv, std::vector<recipes::RecipeRow> own) {
  Program program{FileName(argc, argv), {}};
  Result<recipes::Registry> recipes = recipes::Registry::With(std::move(own));
  if (!recipes.ok()) {
    fmt::print(stderr, "{}: {}\n", program.name, recipes.status().ToString());
    return ExitCode(recipes.status());
  }
  program.recipes = std::move(*recipes);
  const std::string name = argc > 1 ? argv[1] : "";
  if (!name.empty() && !name.starts_with("-")) StartAgainWithSleepingThreads(program, argv);
  for (const Command& command : kCommands) {
    if (name == command.name) return command.main(program, argc - 1, argv + 1);
  }
  if (name == kIdentifyFlag) return Identify(program);
  if (name == "--licenses") return cli::LicensesMain();
  if (name == "--version" || name == "version") return cli::VersionMain(program, argc - 1, argv + 1);
  Help(program, name == "--help" ? stdout : stderr);
  return name == "--help" ? kExitOk : kExitUsage;
}

}  // namespace lockstep
