#include "cli/train/settings.h"

#include <algorithm>

#include "recipes/registry.h"

namespace lockstep::cli {
namespace {

// Small and short, everything else as configured: a checkpoint and a resume in the middle, validation, every feature.
void Shrink(engine::Config* config, engine::Recipe* recipe, uint64_t steps) {
  recipe->Shrink(config);
  engine::TrainConfig& train = config->train;
  train.steps = steps;
  train.schedule.steps = steps;
  train.schedule.warmup = std::min(train.schedule.warmup, steps / 10);
  train.device = "cpu";
  if (config->comm.backend == comm::Backend::kNccl) config->comm.backend = comm::Backend::kAuto;
  train.batch = std::min<uint64_t>(train.batch, 8);
  train.shards = std::min<uint64_t>(train.shards, 8);
  train.micro_batch = train.micro_batch == 0 || train.reproducible ? 0 : std::min<uint64_t>(train.micro_batch, 2);
  if (config->data.source.kind == "clips") config->data.source.clips = 64;
  config->data.validation.every = std::max<uint64_t>(1, steps / 4);
  config->data.validation.samples = 4;
  config->data.validation.patience = 0;
  config->checkpoint.every = std::max<uint64_t>(1, steps / 4);
  config->run.max_time.reset();
}

}  // namespace

Result<Settings> ReadSettings(const std::string& name, const std::string& config_file,
                              const std::vector<std::string>& overrides, bool smoke, uint64_t smoke_steps) {
  Settings settings;
  Result<std::unique_ptr<engine::Recipe>> recipe = recipes::MakeRecipe(name);
  if (!recipe.ok()) return recipe.status();
  settings.recipe = std::move(*recipe);
  settings.recipe->Defaults(&settings.config);
  Result<ConfigTree> tree =
      config_file.empty() ? Result<ConfigTree>(ConfigTree::Empty("defaults")) : ConfigTree::Load(config_file);
  if (!tree.ok()) return tree.status();
  for (const std::string& assignment : overrides) LOCKSTEP_RETURN_IF_ERROR(tree->Override(assignment));
  ConfigReader reader(*tree);
  engine::DeclareConfig(reader, &settings.config);
  reader.Section("recipe", [&](ConfigReader& r) { settings.recipe->Declare(r); });
  LOCKSTEP_RETURN_IF_ERROR(reader.Finish());
  settings.effective = reader.Dump();
  settings.effective_help = reader.DumpWithHelp();
  settings.digest = reader.Digest();
  if (smoke) Shrink(&settings.config, settings.recipe.get(), smoke_steps);
  LOCKSTEP_RETURN_IF_ERROR(settings.recipe->Check(&settings.config));
  return settings;
}

}  // namespace lockstep::cli
