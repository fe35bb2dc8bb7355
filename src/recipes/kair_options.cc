#include "recipes/kair_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

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
constexpr std::string_view kOfTestSets[] = {"data.kind",      "data.target",      "data.input",
                                            "data.meta_info", "data.spikes.path", "data.spikes.precomputed_path"};
// Kinds of data, which both sets have.
constexpr std::string_view kOfBoth[] = {"datasets.*.dataset_type", "datasets.*.temporal_scale"};

bool OneOf(std::string_view word, std::span<const std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

void Take(const std::string& path, const ConfigEntry& entry, const KairKey& row, KairTranslation* made) {
  KairNote note{path, foreign::ValueText(entry.value), row.to, row.why, entry.where.line};
  const bool test = path.starts_with("datasets.test.");
  const bool taken = row.fate == KairKey::Fate::kHonoured || row.fate == KairKey::Fate::kMapped;
  const bool fine = entry.value.kind == ConfigNode::Kind::kNull || foreign::IsAllowed(row, entry.value);
  const bool follows = row.to.starts_with("data.") || row.to.starts_with("train.");
  if (test && OneOf(row.to, kOfTestSets)) {
    note.to = "data.test." + row.to.substr(5);
  } else if (test && OneOf(row.path, kOfBoth)) {
    note.to.clear();
  } else if (test && taken && fine && follows) {
    note.reason = "test clips are read whole, and their spikes as those of training";
    note.to.clear();
    made->ignored.push_back(std::move(note));
    return;
  }
  const std::string to = note.to;
  if (!made->Take(std::move(note), row, entry.value)) return;
  ConfigNode value = entry.value;
  if (const std::string* spelling = foreign::AllowedSpelling(row, value)) value.text = *spelling;
  foreign::SetKey(&made->settings, to, std::move(value));
}

// Items of lists that DeriveKair reads; lists that keys of ours take as they are, are checked there.
void CheckLists(const ConfigNode& options, KairTranslation* made) {
  struct Row {
    const char* key;
    bool text;
  };
  for (const Row& row : {Row{"train.checkpoint_test", false}, Row{"train.G_scheduler_periods", false},
                         Row{"train.fix_keys", true}, Row{"train.lora_target_modules", true}}) {
    const ConfigNode* list = foreign::FindKey(options, row.key);
    if (list == nullptr) continue;
    const auto wrong = std::ranges::find_if(list->items, [&](const ConfigNode& item) {
      const auto number = foreign::NumberOf(item);
      const bool whole = number && std::floor(*number) == *number;
      return item.kind != ConfigNode::Kind::kScalar || item.quoted != row.text || (!row.text && !whole);
    });
    if (wrong == list->items.end()) continue;
    made->refused.push_back({row.key, foreign::ValueText(*list), "",
                             fmt::format("found {}{} in the list: expected {}", wrong->quoted ? "the string " : "",
                                         foreign::ValueText(*wrong), row.text ? "strings" : "whole numbers"),
                             list->where.line});
  }
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
  CheckLists(options, &made);
  DeriveKair(options, phase, &made);
  return made;
}

// What no key of the file says alone points to the file.
void PointTo(const ConfigLocation& file, ConfigNode* node) {
  if (node->where.source == nullptr) node->where = file;
  for (ConfigNode& item : node->items) PointTo(file, &item);
  for (ConfigEntry& entry : node->entries) {
    if (entry.where.source == nullptr) entry.where = file;
    PointTo(file, &entry.value);
  }
}

// What all phases have in common, then what each has of its own.
std::vector<KairDerived> JoinDerived(std::vector<std::vector<KairDerived>> phases) {
  std::vector<KairDerived> joined, own;
  for (size_t i = 0; i < phases.size(); ++i) {
    for (KairDerived& one : phases[i]) {
      const bool common = std::ranges::all_of(phases, [&](const std::vector<KairDerived>& phase) {
        return std::ranges::any_of(phase, [&](const KairDerived& other) {
          return other.name == one.name && other.value == one.value && other.reason == one.reason;
        });
      });
      if (common && i > 0) continue;
      if (!common && !one.name.starts_with("phase ")) one.name = fmt::format("phase {}: {}", i + 1, one.name);
      (common ? joined : own).push_back(one);
    }
  }
  joined.insert(joined.end(), own.begin(), own.end());
  return joined;
}

}  // namespace

Result<KairTranslation> TranslateKair(std::string_view text, const std::string& file) {
  Result<ConfigTree> tree = ConfigTree::Parse(text, file, ConfigTree::Format::kJson);
  if (!tree.ok()) return tree.status();
  const std::vector<KairPhase> phases = SplitKair(tree->root());
  Result<KairTranslation> whole = TranslateOne(file, tree->root(), tree->errors());
  const ConfigLocation anywhere{tree->root().where.source, 0, 0};
  if (whole.ok()) PointTo(anywhere, &whole->settings);
  if (!whole.ok() || phases.empty()) return whole;
  std::vector<ConfigNode> settings;
  std::vector<std::vector<KairDerived>> derived;
  for (const KairPhase& phase : phases) {
    Result<KairTranslation> one = TranslateOne(file, phase.options, {}, phase);
    if (!one.ok()) return one;
    settings.push_back(std::move(one->settings));
    for (KairNote& note : one->refused) {
      const auto same = [&](const KairNote& known) { return known.key == note.key && known.value == note.value; };
      if (std::ranges::none_of(whole->refused, same)) whole->refused.push_back(std::move(note));
    }
    derived.push_back(std::move(one->derived));
  }
  whole->derived = JoinDerived(std::move(derived));
  whole->settings = JoinKair(phases, settings);
  PointTo(anywhere, &whole->settings);
  return whole;
}

std::string KairTranslation::Json() const {
  nlohmann::ordered_json document = {{"file", file}, {"task", task}};
  AddLists(&document);
  document["config"] = ToJson(settings);
  return document.dump(2) + "\n";
}

}  // namespace lockstep::recipes
