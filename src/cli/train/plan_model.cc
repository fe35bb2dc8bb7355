// `lockstep-train plan-model RECIPE`: the model and the training of a configuration as numbers, for `lockstep plan`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/exit_codes.h"
#include "base/json.h"
#include "cli/train/commands.h"
#include "cli/train/settings.h"
#include "engine/planned.h"

namespace lockstep::cli {
namespace {

// The model gets its shape, and memory only where the recipe cannot do without.
Result<nlohmann::json> Describe(Settings& settings, bool gpu) {
  engine::Recipe& recipe = *settings.recipe;
  if (recipe.ModelNeedsData()) {
    Result<std::string> index = recipe.IndexData();
    if (!index.ok()) return index.status();
    if (!index->empty()) recipe.UseIndex(std::make_shared<const std::string>(std::move(*index)));
    if (const auto sources = recipe.Open(settings.config); !sources.ok()) return sources.status();
  }
  recipe.UndrawnParts();
  LOCKSTEP_RETURN_IF_ERROR(recipe.Build(settings.config, settings.config.run.seed));
  LOCKSTEP_RETURN_IF_ERROR(engine::FreezeForGood(settings.config.train.groups, recipe.model()));
  const plan::Workload workload = engine::WorkloadOf(recipe.name(), recipe.model(), recipe.Units(), recipe.Plan());
  // Any GPU of compute capability 8 or more stands for all: what is asked about need not be here.
  const std::optional<engine::GpuFacts> facts =
      gpu ? std::optional(engine::GpuFacts{.name = "planned", .major = 9}) : std::nullopt;
  return nlohmann::json{{"workload", plan::ToJson(workload)},
                        {"setting", plan::ToJson(engine::SettingOf(settings.config.train, 1, facts))}};
}

}  // namespace

int PlanModelMain(const Program& program, int argc, char** argv) {
  Arguments args("Prints the model and the training of a configuration as numbers (for `lockstep plan`).",
                 "lockstep-train plan-model");
  std::string recipe;
  ConfigFiles files;
  std::vector<std::string> overrides;
  bool cpu = false;
  args.Option("RECIPE", &recipe, "name of the recipe").Required();
  args.Option("--config", &files.config, "configuration file").Named("FILE");
  args.Option("--opt", &files.options, "an option file of KAIR or S-VRT (recipe vrt)").Named("FILE");
  args.Option("--deepspeed", &files.deepspeed, "DeepSpeed's configuration").Named("FILE");
  args.Option("--accelerate", &files.accelerate, "accelerate's configuration").Named("FILE");
  args.Option("--ranks", &files.ranks, "that share the batch of these two").Between(1, 1 << 20);
  args.Option("--set", &overrides, "path.of.key=value").Named("KEY=VALUE").Repeated();
  args.Flag("--cpu", &cpu, "for ranks on CPUs");
  if (const auto code = args.Parse(argc, argv)) return *code;
  Result<Settings> settings = ReadSettings(program.recipes, recipe, files, overrides, false, 0);
  Result<nlohmann::json> said = settings.ok() ? Describe(*settings, !cpu) : Result<nlohmann::json>(settings.status());
  if (!said.ok()) {
    fmt::print(stderr, "lockstep plan: {}\n", said.status().ToString());
    return ExitCode(said.status());
  }
  fmt::print("{}\n", ToJsonLine(*said));
  return kExitOk;
}

}  // namespace lockstep::cli
