#include "cli/train/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/files.h"
#include "base/own_program.h"
#include "cli/train/foreign_settings.h"

namespace lockstep::cli {
namespace {

// Small and short, everything else as configured: a checkpoint and a resume in the middle, validation, every feature.
// Of a batch that is large enough, every rank has a sample.
void Shrink(engine::Config* config, engine::Recipe* recipe, uint64_t steps, int ranks) {
  const uint64_t least = std::min<uint64_t>(config->train.batch, std::max(1, ranks));
  recipe->Shrink(config);
  engine::TrainConfig& train = config->train;
  train.steps = steps;
  train.schedule.steps = steps;
  train.schedule.warmup = std::min(train.schedule.warmup, steps / 10);
  train.device = "cpu";
  if (config->comm.backend == comm::Backend::kNccl) config->comm.backend = comm::Backend::kAuto;
  train.batch = std::max(least, std::min<uint64_t>(train.batch, 8));
  train.shards = std::min<uint64_t>(train.shards, 8);
  train.micro_batch = train.micro_batch == 0 || train.reproducible ? 0 : std::min<uint64_t>(train.micro_batch, 2);
  config->data.validation.every = std::max<uint64_t>(1, steps / 4);
  config->data.validation.samples = 4;
  config->data.validation.patience = 0;
  config->checkpoint.every = std::max<uint64_t>(1, steps / 4);
  config->run.max_time.reset();
}

void Declare(const ConfigTree& tree, ConfigReader* reader, Settings* settings) {
  {
    // The recipe's own section first: the defaults of the others may depend on it. The real reading reports mistakes.
    ConfigReader first(tree);
    first.Section("recipe", [&](ConfigReader& r) { settings->recipe->Declare(r); });
  }
  settings->recipe->Defaults(&settings->config);
  engine::DeclareConfig(*reader, &settings->config,
                        [&](ConfigReader& r) { settings->recipe->DeclareData(r, &settings->config.data); });
  reader->Section("recipe", [&](ConfigReader& r) { settings->recipe->Declare(r); });
}

Result<ConfigTree> LoadTree(const std::string& recipe, const ConfigFiles& files,
                            std::optional<recipes::KairTranslation>* options) {
  if (files.options.empty()) {
    return files.config.empty() ? Result<ConfigTree>(ConfigTree::Empty("defaults")) : ConfigTree::Load(files.config);
  }
  if (!files.config.empty()) {
    return Status(Code::kUsage, "--config and --opt: expected one of them",
                  fmt::format("`lockstep config {} --opt {} > {}.yaml` makes a configuration of the option file",
                              recipe, files.options, recipe));
  }
  Result<recipes::KairTranslation> translated = ReadOptions(recipe, files.options);
  if (!translated.ok()) return translated.status();
  LOCKSTEP_RETURN_IF_ERROR(translated->Check());
  *options = std::move(*translated);
  ConfigTree tree = ConfigTree::Empty(files.options);
  tree.Merge((*options)->settings);
  return tree;
}

// What is read of a configuration with phases: all of it but for them, or one of them over it.
struct PhasePart {
  std::vector<engine::PhaseSpec> phases;
  ConfigNode section;  // as it is written
};

// The steps follow from the phases, so that they are said once.
Status LayOver(const PhasePart& part, const std::optional<size_t>& index, ConfigTree* tree) {
  const ConfigNode* train = tree->root().Find("train");
  const ConfigNode* said = train == nullptr ? nullptr : train->Find("steps");
  const std::string total = std::to_string(engine::TotalSteps(part.phases));
  if (said != nullptr && said->text != total) {
    return Status(Code::kUsage,
                  fmt::format("{}: train.steps is {}, and the phases have {} steps together", said->where.ToString(),
                              said->text, total),
                  "leave train.steps out");
  }
  ConfigNode steps{.kind = ConfigNode::Kind::kScalar,
                   .text = index ? std::to_string(engine::ScheduleSteps(part.phases, *index)) : total};
  ConfigNode in_train{.kind = ConfigNode::Kind::kMap}, over{.kind = ConfigNode::Kind::kMap};
  in_train.entries.push_back({"steps", {}, std::move(steps)});
  over.entries.push_back({"train", {}, std::move(in_train)});
  tree->Merge(over);
  if (index) tree->Merge(part.phases[*index].over);
  return Status::Ok();
}

// Without the rules between sections. `part` gets the phases of the configuration; with `index` they are given, and
// that one is read.
Result<Settings> ReadOnce(const recipes::Registry& recipes, const std::string& name, const ConfigFiles& files,
                          const std::vector<std::string>& assignments, PhasePart* part,
                          std::optional<size_t> index = std::nullopt) {
  Settings settings, of_file;
  for (Settings* one : {&settings, &of_file}) {
    Result<std::unique_ptr<engine::Recipe>> recipe = recipes.Make(name);
    if (!recipe.ok()) return recipe.status();
    one->recipe = std::move(*recipe);
  }
  Result<ConfigTree> tree = LoadTree(name, files, &settings.options);
  if (!tree.ok()) return tree.status();
  if (HasForeign(files)) {
    Result<foreign::DeepSpeedReport> report = TranslateForeign(recipes, name, files, assignments);
    if (!report.ok()) return report.status();
    LOCKSTEP_RETURN_IF_ERROR(report->Check());
    LOCKSTEP_RETURN_IF_ERROR(CheckAgreement(*tree, *report));
    tree->Merge(report->settings);
    settings.deepspeed = std::move(*report);
  }
  if (ConfigNode section = tree->Take("phases"); !index) {
    Result<std::vector<engine::PhaseSpec>> phases = engine::ReadPhases(section);
    if (!phases.ok()) return phases.status();
    *part = {std::move(*phases), std::move(section)};
  }
  if (!part->phases.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(LayOver(*part, index, &*tree));
    for (const std::string& assignment : assignments) {
      if (!assignment.starts_with("train.steps=")) continue;
      return Status(Code::kUsage, fmt::format("--set {}: the run has phases, and each says its steps", assignment),
                    "change `steps` of a phase in the file");
    }
  }
  // The file is read alone first: what it sets and the command line makes meaningless is no mistake.
  const ConfigTree file = *tree;
  ConfigReader alone(file);
  Declare(file, &alone, &of_file);
  for (const std::string& assignment : assignments) LOCKSTEP_RETURN_IF_ERROR(tree->Override(assignment));
  ConfigReader reader(*tree);
  Declare(*tree, &reader, &settings);
  if (const Status read = reader.Finish(&alone); !read.ok()) {
    const std::string program = OwnExecutable(kEngineName);
    const bool ours = program.substr(program.rfind('/') + 1) == kEngineName;
    return Status(
        read.code(), read.message(),
        fmt::format("`lockstep config {}{}` lists every key", ours ? "" : fmt::format("--program {} ", program), name));
  }
  settings.renamed = reader.renamed();
  settings.effective = reader.Dump();
  settings.effective_help = reader.DumpWithHelp();
  settings.digest = reader.Digest();
  if (!part->phases.empty()) {
    ConfigNode more{.kind = ConfigNode::Kind::kMap};
    more.entries.push_back({"phases", {}, part->section});
    const std::string text = WriteYaml(more);
    settings.effective += text;
    settings.effective_help += "\n# One after the other, each with what it changes in the sections above.\n" + text;
  }
  return settings;
}

// What the command line gives stays; the rest follows from it.
Result<Settings> ReadDerived(const recipes::Registry& recipes, const std::string& name, const ConfigFiles& files,
                             const std::vector<std::string>& overrides, const PresetRequest& request) {
  PhasePart part;
  Result<Settings> base = ReadOnce(recipes, name, files, overrides, &part);
  if (!base.ok()) return base;
  if (!part.phases.empty()) {
    return Status(Code::kUsage,
                  "a configuration with phases has a batch for each of them, not one for a number of GPUs",
                  "set train.batch of each phase");
  }
  recipes::PresetOptions options;
  options.gpus = request.gpus;
  options.gpus_per_node = request.gpus_per_node;
  options.cores = request.cores;
  options.pinned = [&](const std::string& key) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const std::string& assignment) { return assignment.starts_with(key + "="); });
  };
  Result<recipes::Preset> preset = recipes::DerivePreset(base->config, options);
  if (!preset.ok()) return preset.status();
  std::vector<std::string> all = preset->Assignments();
  all.insert(all.end(), overrides.begin(), overrides.end());
  Result<Settings> settings = ReadOnce(recipes, name, files, all, &part);
  if (settings.ok()) settings->preset = std::move(*preset);
  return settings;
}

}  // namespace

// Beside or above a checkpoint.
std::string ConfigOfRun(const std::string& weights) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::weakly_canonical(weights, ignored);
  for (int up = 0; up < 3 && !folder.empty(); ++up, folder = folder.parent_path()) {
    const std::filesystem::path file = folder / "train.yaml";
    if (std::filesystem::exists(file, ignored)) return file.string();
  }
  return "";
}

Result<recipes::KairTranslation> ReadOptions(const std::string& recipe, const std::string& file) {
  if (recipe != "vrt") {
    return Status(Code::kUsage, fmt::format("--opt: the recipe {} reads no option files of other programs", recipe),
                  "only vrt does (KAIR's); others take --config");
  }
  Result<std::string> text = ReadFile(file);
  if (!text.ok()) return text.status().Context("--opt");
  return recipes::TranslateKair(*text, file);
}

Result<foreign::DeepSpeedReport> TranslateForeign(const recipes::Registry& recipes, const std::string& recipe,
                                                  const ConfigFiles& files, const std::vector<std::string>& overrides) {
  const ConfigFiles own{files.config, files.options};
  // Keys that only the other file gives a meaning.
  constexpr std::array kOfForeign = {"train.zero.", "train.offload.", "train.parameters", "train.bucket",
                                     "train.scaler."};
  std::vector<std::string> assignments;
  for (const std::string& one : overrides) {
    const auto is_of = [&](const char* key) { return one.starts_with(key); };
    if (std::none_of(kOfForeign.begin(), kOfForeign.end(), is_of)) assignments.push_back(one);
  }
  PhasePart part;
  Result<Settings> base = ReadOnce(recipes, recipe, own, assignments, &part);
  if (!base.ok()) base = ReadOnce(recipes, recipe, own, {}, &part);
  if (!base.ok()) return base.status();
  return ReadForeign(files, ContextOf(*base, files.ranks));
}

Result<Settings> ReadSettings(const recipes::Registry& recipes, const std::string& name, const ConfigFiles& files,
                              const std::vector<std::string>& overrides, bool smoke, uint64_t smoke_steps,
                              const PresetRequest& preset) {
  if (preset.gpus != 0 && HasForeign(files)) {
    return Status(Code::kUsage, "a number of GPUs derives the batch, and DeepSpeed's file says it",
                  "leave --gpus or --preset out, or the file");
  }
  PhasePart part;
  Result<Settings> settings = preset.gpus == 0 ? ReadOnce(recipes, name, files, overrides, &part)
                                               : ReadDerived(recipes, name, files, overrides, preset);
  if (!settings.ok()) return settings;
  if (smoke) Shrink(&settings->config, settings->recipe.get(), smoke_steps, files.ranks);
  LOCKSTEP_RETURN_IF_ERROR(settings->recipe->Check(&settings->config));
  if (settings->deepspeed) TakeEffective(settings->config.train, &*settings->deepspeed);
  if (smoke) engine::ShortenTo(smoke_steps, &part.phases);
  for (size_t i = 0; i < part.phases.size(); ++i) {
    const std::string which = fmt::format("phases[{}]", i);
    Result<Settings> phase = ReadOnce(recipes, name, files, overrides, &part, i);
    if (!phase.ok()) return phase.status().Context(which);
    engine::Config& config = phase->config;
    if (smoke) Shrink(&config, phase->recipe.get(), engine::ScheduleSteps(part.phases, i), files.ranks);
    LOCKSTEP_RETURN_IF_ERROR(phase->recipe->Check(&config).Context(which));
    phase->phase = engine::PlacePhase(part.phases, i);
    config.train.steps = phase->phase.begin + part.phases[i].steps;
    settings->phases.push_back(std::move(*phase));
  }
  return settings;
}

// A policy is among the effective keys where its cache is named.
Result<std::vector<std::string>> CachePolicy(const Settings& settings, const std::string& policy) {
  constexpr std::array<std::array<const char*, 4>, 2> kPolicies = {
      {{"recipe", "teacher", "cache", "policy"}, {"data", "features", "policy", nullptr}}};
  const Result<ConfigTree> tree = ConfigTree::Parse(settings.effective, "configuration", ConfigTree::Format::kYaml);
  if (!tree.ok()) return tree.status();
  std::vector<std::string> overrides;
  for (const auto& keys : kPolicies) {
    const ConfigNode* node = &tree->root();
    std::string path;
    for (size_t i = 0; node != nullptr && i < keys.size() && keys[i] != nullptr; ++i) {
      node = node->Find(keys[i]);
      path += (i == 0 ? "" : ".") + std::string(keys[i]);
    }
    if (node != nullptr) overrides.push_back(path + "=" + policy);
  }
  if (overrides.empty()) {
    return Status(Code::kUsage, fmt::format("--cache {}: the configuration names no feature cache", policy),
                  "set recipe.teacher.cache.root (recipe taehv) or data.features.config, or leave the flag out");
  }
  return overrides;
}

}  // namespace lockstep::cli
