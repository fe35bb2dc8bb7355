#include "recipes/kair_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/config_json.h"
#include "base/text.h"
#include "recipes/kair_derive.h"
#include "recipes/kair_phases.h"

namespace lockstep::recipes {
namespace {

// "datasets.*.gt_size" for "datasets.train.gt_size".
std::string Generic(std::string path) {
  for (const std::string_view phase : {"train", "test"}) {
    const std::string start = fmt::format("datasets.{}", phase);
    if (path == start || path.starts_with(start + ".")) return "datasets.*" + path.substr(start.size());
  }
  return path;
}

const KairKey* RowOf(const std::string& path) {
  static const std::map<std::string, const KairKey*> rows = [] {
    std::map<std::string, const KairKey*> all;
    for (const KairKey& key : KairKeys()) all[key.path] = &key;
    return all;
  }();
  const auto find = [](const std::string& name) {
    const auto it = rows.find(name);
    return it == rows.end() ? nullptr : it->second;
  };
  if (const KairKey* row = find(Generic(path))) return row;
  // A phase of two_run may replace any key of train, and the paths of weights.
  for (const char* phase : {"train.two_run.phase1.", "train.two_run.phase2."}) {
    if (!path.starts_with(phase)) continue;
    const std::string own = path.substr(std::string_view(phase).size());
    if (find("train." + own) != nullptr || own == "path" || (own.starts_with("path.") && find(own) != nullptr)) {
      return find(std::string(phase) + "*");
    }
  }
  return nullptr;
}

// Our keys that a test set has of its own; in everything else it follows the training set.
constexpr std::string_view kOfTestSets[] = {"data.target", "data.input", "data.meta_info", "data.spikes.path"};

void Take(const std::string& path, const ConfigEntry& entry, const KairKey& row, KairTranslation* made) {
  KairNote note{path, foreign::ValueText(entry.value), row.to, row.why, entry.where.line};
  const bool test = path.starts_with("datasets.test.");
  if (note.to.starts_with("data.") && test) note.to = "data.test." + note.to.substr(5);
  const bool taken = row.fate == KairKey::Fate::kHonoured || row.fate == KairKey::Fate::kMapped;
  const bool null = entry.value.kind == ConfigNode::Kind::kNull;
  if (taken && test && row.copied && (null || foreign::IsAllowed(row, entry.value)) &&
      std::ranges::find(kOfTestSets, row.to) == std::end(kOfTestSets)) {
    note.reason = "test clips are read whole, and their spikes as those of training";
    note.to.clear();
    made->ignored.push_back(std::move(note));
    return;
  }
  const std::string to = note.to;
  if (made->Take(std::move(note), row, entry.value)) foreign::SetKey(&made->settings, to, entry.value);
}

Result<KairTranslation> TranslateOne(const std::string& file, const ConfigNode& options,
                                     const std::vector<ConfigError>& errors, const KairPhase& phase = {}) {
  KairTranslation made;
  made.file = file;
  made.kind = "option file";
  made.command = "lockstep config vrt --opt FILE";
  made.settings.kind = ConfigNode::Kind::kMap;
  foreign::KeyWalk walk(KairKeys(), RowOf, [&](const std::string& path, const ConfigEntry& entry, const KairKey& row) {
    Take(path, entry, row, &made);
  });
  walk.Spelled(Generic);
  walk.Run(options);
  // Of another model most keys are unknown; which one it is says more than their list.
  for (const KairNote& note : made.refused) {
    if (walk.errors().empty() || note.key != "netG.net_type") continue;
    return Status(Code::kUsage,
                  fmt::format("{}:{}: netG.net_type = {}: {}", file, note.line, Printable(note.value, 80), note.reason),
                  "give an option file of VRT");
  }
  std::vector<std::string> mistakes;
  for (const ConfigError& error : errors) mistakes.push_back(error.ToString());
  mistakes.insert(mistakes.end(), walk.errors().begin(), walk.errors().end());
  if (!mistakes.empty()) {
    return Status(Code::kUsage, Join(mistakes, "\n"),
                  "docs/vrt.md lists the keys of option files; lockstep config vrt --opt FILE shows what each becomes");
  }
  DeriveKair(options, phase, &made);
  return made;
}

}  // namespace

Result<KairTranslation> TranslateKair(std::string_view text, const std::string& file) {
  Result<ConfigTree> tree = ConfigTree::Parse(text, file, ConfigTree::Format::kJson);
  if (!tree.ok()) return tree.status();
  const std::vector<KairPhase> phases = SplitKair(tree->root());
  Result<KairTranslation> whole = TranslateOne(file, tree->root(), tree->errors());
  if (!whole.ok() || phases.empty()) return whole;
  std::vector<ConfigNode> settings;
  for (const KairPhase& phase : phases) {
    Result<KairTranslation> one = TranslateOne(file, phase.options, {}, phase);
    if (!one.ok()) return one;
    settings.push_back(std::move(one->settings));
    for (KairNote& note : one->refused) {
      const auto same = [&](const KairNote& known) { return known.key == note.key && known.value == note.value; };
      if (std::ranges::none_of(whole->refused, same)) whole->refused.push_back(std::move(note));
    }
    for (KairDerived& derived : one->derived) {
      if (derived.name.starts_with("phase ")) whole->derived.push_back(std::move(derived));
    }
  }
  whole->settings = JoinKair(phases, settings);
  return whole;
}

std::string KairTranslation::Json() const {
  nlohmann::ordered_json document = {{"file", file}, {"task", task}};
  AddLists(&document);
  document["config"] = ToJson(settings);
  return document.dump(2) + "\n";
}

}  // namespace lockstep::recipes
