// `lockstep config RECIPE`: every key with its value and what it means; with --gpus what a number of GPUs changes and
// why.
#include <fmt/format.h>

#include "base/arguments.h"
#include "base/json.h"
#include "cli/train/commands.h"
#include "cli/train/settings.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

std::string Origin(const std::string& file, const std::string& recipe) {
  return file.empty() ? fmt::format("the defaults of {}", recipe) : file;
}

ordered_json ToJson(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return nullptr;
    case ConfigNode::Kind::kList: {
      ordered_json list = ordered_json::array();
      for (const ConfigNode& item : node.items) list.push_back(ToJson(item));
      return list;
    }
    case ConfigNode::Kind::kMap: {
      ordered_json map = ordered_json::object();
      for (const ConfigEntry& entry : node.entries) map[entry.key] = ToJson(entry.value);
      return map;
    }
    case ConfigNode::Kind::kScalar:
      break;
  }
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (IsNullText(node.text)) return nullptr;
  if (node.LooksNumber()) {
    if (node.text.find_first_of(".eE") == std::string::npos) return std::stoll(node.text);
    return std::stod(node.text);
  }
  return node.text;
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
  if (settings.options) {
    const auto lists = ordered_json::parse(settings.options->Json());
    for (const char* key : {"honoured", "mapped", "ignored", "refused", "derived"}) document[key] = lists.at(key);
  }
  document["config"] = ToJson(tree->root());
  return document.dump(2) + "\n";
}

}  // namespace

int ConfigMain(const Program& program, int argc, char** argv) {
  Arguments args(
      "Prints every key of a recipe's configuration with its value and what it means; the output is a config file.",
      "lockstep config");
  std::string recipe;
  std::string file, options;
  std::vector<std::string> overrides;
  PresetRequest preset;
  bool plain = false, json = false;
  args.Option("RECIPE", &recipe, "name of the recipe").Required();
  args.Option("--config", &file, "a configuration file whose values are shown instead of the defaults").Named("FILE");
  args.Option("--opt", &options,
              "an option file of KAIR or S-VRT (recipe vrt): what becomes of each of its keys, and our own form of it")
      .Named("FILE");
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
      "  lockstep config vrt --opt options/006.json > vrt.yaml\n");
  if (const auto code = args.Parse(argc, argv)) return *code;
  if (!options.empty()) {
    // Of a file that is refused, too, the lists are what was asked for.
    Result<recipes::KairTranslation> translated = ReadOptions(recipe, options);
    if (translated.ok() && !translated->Check().ok()) {
      fmt::print("{}", json ? translated->Json() + "\n" : translated->Table(""));
    }
  }
  Result<Settings> settings = ReadSettings(program.recipes, recipe, {file, options}, overrides, false, 0, preset);
  if (!settings.ok()) {
    fmt::print(stderr, "lockstep config: {}\n", settings.status().ToString());
    return ExitCode(settings.status());
  }
  for (const std::string& note : settings->renamed) fmt::print(stderr, "lockstep config: note: {}\n", note);
  if (json) {
    Result<std::string> text = ConfigJson(*settings, recipe, options.empty() ? file : options);
    if (!text.ok()) {
      fmt::print(stderr, "lockstep config: {}\n", text.status().ToString());
      return ExitCode(text.status());
    }
    fmt::print("{}", *text);
    return 0;
  }
  if (settings->options && !plain) fmt::print("{}\n", settings->options->Table("# "));
  if (settings->preset && !plain)
    fmt::print("{}\n", settings->preset->Table("# ", Origin(options.empty() ? file : options, recipe)));
  fmt::print("{}", plain ? settings->effective : settings->effective_help);
  return 0;
}

}  // namespace lockstep::cli
