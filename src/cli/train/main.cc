// `lockstep-train <command>`: the training engine and its recipes, on LibTorch. Started by `lockstep train` and
// `lockstep config`, or as a rank by any launcher that says who is who.
#include <fmt/format.h>
#include <torch/version.h>

#include <string>

#include "cli/train/commands.h"
#include "recipes/registry.h"

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "train") return lockstep::cli::TrainMain(argc - 1, argv + 1);
  if (command == "config") return lockstep::cli::ConfigMain(argc - 1, argv + 1);
  if (command == "--version") {
    fmt::print("lockstep-train {} (LibTorch {})\n", LOCKSTEP_VERSION, TORCH_VERSION);
    return 0;
  }
  fmt::print(command == "--help" ? stdout : stderr,
             "usage: lockstep-train train RECIPE [options]    one rank of a training (see `lockstep train --help`)\n"
             "       lockstep-train config RECIPE             every key of its configuration\n"
             "       lockstep-train --version\n\nrecipes:\n");
  for (const std::string& name : lockstep::recipes::RecipeNames()) {
    auto recipe = lockstep::recipes::MakeRecipe(name);
    fmt::print(command == "--help" ? stdout : stderr, "  {:<10} {}\n", name, (*recipe)->help());
  }
  return command == "--help" ? 0 : 2;
}
