// `lockstep config RECIPE`: every key with its value and what it means; with --gpus what a number of GPUs changes and
// why.
#include <fmt/format.h>

#include "base/arguments.h"
#include "base/config_json.h"
#include "base/exit_codes.h"
#include "base/json.h"
#include "cli/train/commands.h"
#include "cli/train/foreign_settings.h"
#include "cli/train/settings.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

std::string Origin(const std::string& file, const std::string& recipe) {
  return file.empty() ? fmt::format("the defaults of {}", recipe) : file;
}

Result<std::string> ConfigJson(const Settings& settings, const std::string& recipe, const std::string& file) {
  Result<ConfigTree> tree = ConfigTree::Parse(settings.effective, "effective", ConfigTree::Format::kYaml);
  if (!tree.ok()) return tree.status();
  ordered_json document = {{"recipe", recipe}, {"base", file.empty() ? ordered_json(nullptr) : ordered_json(file)}};
  if (settings.preset) {
    const recipes::Preset& preset = *settings.preset;
    document["gpus"] = preset.gpus;
    document["batch"] = {{"global", preset.batch},
                         {"ranks", preset.gpus},
                         {"micro", preset.micro},
                         {"passes", preset.passes},
                         {"text", preset.batch_text}};
    ordered_json derived = ordered_json::array();
    for (const recipes::PresetLine& line : preset.lines) {
      derived.push_back({{"key", line.key}, {"from", line.from}, {"to", line.to}, {"why", line.why}});
    }
    document["derived"] = std::move(derived);
  }
  if (settings.deepspeed) settings.deepspeed->AddTo(&document);
  if (settings.options) settings.options->AddLists(&document);
  document["config"] = ToJson(tree->root());
  return document.dump(2) + "\n";
}

// Without a recipe: what becomes of the other program's file alone.
int TranslateAlone(const ConfigFiles& files, bool json) {
  foreign::DeepSpeedContext context;
  context.ranks = files.ranks;
  const Result<foreign::DeepSpeedReport> report = ReadForeign(files, context);
  const Status status = report.ok() ? report->Check() : report.status();
  if (report.ok()) fmt::print("{}", json ? report->Json() : status.ok() ? report->Yaml() : report->Table(""));
  if (!status.ok()) fmt::print(stderr, "lockstep config: {}\n", status.ToString());
  return ExitCode(status);
}

}  // namespace

int ConfigMain(const Program& program, int argc, char** argv) {
  Arguments args(
      "Prints every key of a recipe's configuration with its value and what it means; the output is a config file.",
      "lockstep config");
  std::string recipe;
  ConfigFiles files;
  std::vector<std::string> overrides;
  PresetRequest preset;
  bool plain = false, json = false;
  args.Option("RECIPE", &recipe, "name of the recipe; not needed with --deepspeed or --accelerate");
  args.Option("--config", &files.config, "a configuration file whose values are shown instead of the defaults")
      .Named("FILE");
  args.Option("--opt", &files.options,
              "an option file of KAIR or S-VRT (recipe vrt): what becomes of each of its keys, and our own form of it")
      .Named("FILE");
  args.Option("--deepspeed", &files.deepspeed,
              "DeepSpeed's configuration (HJSON), over --config: what becomes of each of its keys, and what `auto` is")
      .Named("FILE");
  args.Option("--accelerate", &files.accelerate, "the same for accelerate's (YAML)").Named("FILE");
  args.Option("--ranks", &files.ranks, "that share the batch of these two (1, or what accelerate's file says)")
      .Between(1, 1 << 20);
  args.Option("--set", &overrides, "path.of.key=value").Named("KEY=VALUE").Repeated();
  args.Option(
          "--gpus", &preset.gpus,
          "for this many GPUs: batch, micro-batch, learning rate, warm-up and intervals derived from the configuration "
          "by the batch rule, shown with its reasons")
      .Between(1, 1 << 20);
  args.Option("--gpus-per-node", &preset.gpus_per_node, "of them in one machine (all, at most 8)").Between(1, 1 << 10);
  args.Option("--cores", &preset.cores, "CPU cores of one machine, for the loader's threads").Between(1, 1 << 16);
  args.Flag("--plain", &plain, "without the explanations");
  args.Flag("--json", &json, "one JSON document");
  args.Footer(
      "examples:\n  lockstep config taehv > taehv.yaml\n  lockstep config taehv --set train.optimizer.kind=sgd\n"
      "  lockstep config taehv --gpus 48 > taehv-48.yaml\n"
      "  lockstep config taehv --config mine.yaml --gpus 12 --cores 96 --json\n"
      "  lockstep config vrt --opt options/006.json > vrt.yaml\n"
      "  lockstep config lm --deepspeed ds.json --ranks 8\n"
      "  lockstep config --deepspeed ds.json --json\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  if (recipe.empty() && HasForeign(files)) return TranslateAlone(files, json);
  if (recipe.empty()) {
    fmt::print(stderr, "lockstep config: expected the name of a recipe\n  do: lockstep config RECIPE\n");
    return kExitUsage;
  }
  // Of a file that is refused, too, the lists are what was asked for.
  if (HasForeign(files)) {
    const Result<foreign::DeepSpeedReport> report = TranslateForeign(program.recipes, recipe, files, overrides);
    if (report.ok() && !report->Check().ok()) fmt::print("{}", json ? report->Json() : report->Table(""));
  }
  if (!files.options.empty()) {
    Result<recipes::KairTranslation> translated = ReadOptions(recipe, files.options);
    if (translated.ok() && !translated->Check().ok()) {
      fmt::print("{}", json ? translated->Json() + "\n" : translated->Table(""));
    }
  }
  Result<Settings> settings = ReadSettings(program.recipes, recipe, files, overrides, false, 0, preset);
  if (!settings.ok()) {
    fmt::print(stderr, "lockstep config: {}\n", settings.status().ToString());
    return ExitCode(settings.status());
  }
  for (const std::string& note : settings->renamed) fmt::print(stderr, "lockstep config: note: {}\n", note);
  const std::string& base = files.options.empty() ? files.config : files.options;
  if (json) {
    Result<std::string> text = ConfigJson(*settings, recipe, base);
    if (!text.ok()) {
      fmt::print(stderr, "lockstep config: {}\n", text.status().ToString());
      return ExitCode(text.status());
    }
    fmt::print("{}", *text);
    return 0;
  }
  if (settings->deepspeed && !plain) fmt::print("{}\n", settings->deepspeed->Table("# "));
  if (settings->options && !plain) fmt::print("{}\n", settings->options->Table("# "));
  if (settings->preset && !plain) fmt::print("{}\n", settings->preset->Table("# ", Origin(base, recipe)));
  fmt::print("{}", plain ? settings->effective : settings->effective_help);
  return 0;
}

}  // namespace lockstep::cli
