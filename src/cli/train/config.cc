// `lockstep config RECIPE`: every key with its value and what it means.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/train/commands.h"
#include "cli/train/settings.h"

namespace lockstep::cli {

int ConfigMain(int argc, char** argv) {
  CLI::App app{
      "Prints every key of a recipe's configuration with its value and what it means; the output is a config file.",
      "lockstep config"};
  std::string recipe;
  std::string file;
  std::vector<std::string> overrides;
  bool plain = false;
  app.add_option("RECIPE", recipe, "name of the recipe")->required();
  app.add_option("--config", file, "a configuration file whose values are shown instead of the defaults");
  app.add_option("--set", overrides, "path.of.key=value")->expected(1)->take_all();
  app.add_flag("--plain", plain, "without the explanations");
  app.footer(
      "examples:\n  lockstep config taehv > taehv.yaml\n  lockstep config taehv --set train.optimizer.kind=sgd\n");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  Result<Settings> settings = ReadSettings(recipe, file, overrides, false, 0);
  if (!settings.ok()) {
    fmt::print(stderr, "lockstep config: {}\n", settings.status().ToString());
    return ExitCode(settings.status());
  }
  fmt::print("{}", plain ? settings->effective : settings->effective_help);
  return 0;
}

}  // namespace lockstep::cli
