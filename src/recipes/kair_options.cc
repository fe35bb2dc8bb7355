#include "recipes/kair_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "recipes/kair_derive.h"
#include "recipes/kair_phases.h"

namespace lockstep::recipes {
namespace {

using nlohmann::ordered_json;

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

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

bool HasChildren(const KairKey& row) {
  return row.type == 'o' || std::ranges::any_of(KairKeys(), [&](const KairKey& key) {
           return key.path.starts_with(row.path + ".") && !row.path.ends_with('*');
         });
}

struct TypeRow {
  char letter;
  const char* words;
};
constexpr TypeRow kTypes[] = {{'b', "true or false"}, {'i', "a whole number"}, {'n', "a number"},
                              {'s', "a string"},      {'l', "a list"},         {'g', "a whole number or a list"},
                              {'o', "keys in braces"}};

bool FitsType(const ConfigNode& node, char type) {
  using Kind = ConfigNode::Kind;
  const bool scalar = node.kind == Kind::kScalar;
  const bool number = scalar && !node.quoted && node.LooksNumber();
  const bool whole = number && node.text.find_first_of(".eE") == std::string::npos;
  switch (type) {
    case 'b':
      return scalar && !node.quoted && (node.text == "true" || node.text == "false");
    case 'i':
      return whole;
    case 'n':
      return number;
    case 's':
      return scalar && node.quoted;
    case 'l':
      return node.kind == Kind::kList;
    case 'g':
      return whole || node.kind == Kind::kList;
    case 'o':
      return node.kind == Kind::kMap;
    default:
      return true;
  }
}

// Our keys that a test set has of its own; in everything else it follows the training set.
constexpr std::string_view kOfTestSets[] = {"data.target", "data.input", "data.meta_info", "data.spikes.path"};

class Walker {
 public:
  explicit Walker(const std::string& file) { made_.file = file; }

  Result<KairTranslation> Run(const ConfigNode& options, const std::vector<ConfigError>& errors,
                              const KairPhase& phase = {}) {
    for (const ConfigError& error : errors) errors_.push_back(error.ToString());
    Walk(options, "");
    if (!errors_.empty()) {
      return Status(
          Code::kUsage, Join(errors_, "\n"),
          "docs/vrt.md lists the keys of option files; lockstep config vrt --opt FILE shows what each becomes");
    }
    made_.settings.kind = ConfigNode::Kind::kMap;
    for (const auto& [key, value] : copies_) SetKair(&made_.settings, key, value);
    DeriveKair(options, phase, &made_);
    return std::move(made_);
  }

 private:
  void Walk(const ConfigNode& map, const std::string& above) {
    for (const ConfigEntry& entry : map.entries) {
      const std::string path = above.empty() ? entry.key : above + "." + entry.key;
      const KairKey* row = RowOf(path);
      if (row == nullptr) {
        Unknown(path, entry);
        continue;
      }
      const bool null = entry.value.kind == ConfigNode::Kind::kNull;
      if (!null && !FitsType(entry.value, row->type)) {
        const auto* type = std::ranges::find(kTypes, row->type, &TypeRow::letter);
        errors_.push_back(fmt::format("{}: {}: expected {}, found {}", entry.where.ToString(), path, type->words,
                                      row->fate == KairKey::Fate::kSecret ? "something else" : entry.value.Describe()));
      } else if (entry.value.kind == ConfigNode::Kind::kMap && HasChildren(*row)) {
        Walk(entry.value, path);
      } else {
        Take(path, entry, *row, null);
      }
    }
  }

  void Unknown(const std::string& path, const ConfigEntry& entry) {
    std::vector<std::string> names;
    for (const KairKey& key : KairKeys()) names.push_back(key.path);
    std::string hint;
    const std::string name = path.substr(path.rfind('.') + 1);
    for (const std::string& known : names) {  // the right name in the wrong section
      if (hint.empty() && known.ends_with("." + name)) hint = fmt::format(" (did you mean '{}'?)", known);
    }
    if (hint.empty()) hint = DidYouMean(Generic(path), names);
    errors_.push_back(fmt::format("{}: unknown key '{}'{}", entry.where.ToString(), path, hint));
  }

  void Take(const std::string& path, const ConfigEntry& entry, const KairKey& row, bool null) {
    using Fate = KairKey::Fate;
    KairNote note{path, KairText(entry.value), row.to, row.why, entry.where.line};
    const bool test = path.starts_with("datasets.test.");
    if (note.to.starts_with("data.") && test) note.to = "data.test." + note.to.substr(5);
    const bool allowed = row.allowed.empty() || std::ranges::any_of(row.allowed, [&](const std::string& value) {
                           return Lower(value) == Lower(note.value);
                         });
    if (row.fate == Fate::kSecret) {
      note.value.clear();
      const bool empty = null || entry.value.text.empty();
      note.reason =
          empty ? "no key, as it should be"
                : fmt::format("a secret in a file: {}, put it into {} and take it out of the file", row.why, row.to);
      note.to.clear();
      (empty ? made_.ignored : made_.refused).push_back(std::move(note));
    } else if (row.fate == Fate::kRefused) {
      const bool off = null || (!row.allowed.empty() && allowed);
      if (off) note.reason = "off";
      (off ? made_.ignored : made_.refused).push_back(std::move(note));
    } else if (!null && !allowed) {
      note.reason = fmt::format("{}{}expected {}", row.why, row.why.empty() ? "" : "; ", Join(row.allowed, ", "));
      made_.refused.push_back(std::move(note));
    } else if (row.fate == Fate::kIgnored) {
      made_.ignored.push_back(std::move(note));
    } else if (test && row.copied && std::ranges::find(kOfTestSets, row.to) == std::end(kOfTestSets)) {
      note.reason = "test clips are read whole, and their spikes as those of training";
      note.to.clear();
      made_.ignored.push_back(std::move(note));
    } else {
      if (row.copied && !null) copies_.emplace_back(note.to, entry.value);
      (row.fate == Fate::kHonoured ? made_.honoured : made_.mapped).push_back(std::move(note));
    }
  }

  KairTranslation made_;
  std::vector<std::pair<std::string, ConfigNode>> copies_;
  std::vector<std::string> errors_;
};

ordered_json ToJsonNode(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return nullptr;
    case ConfigNode::Kind::kList: {
      ordered_json list = ordered_json::array();
      for (const ConfigNode& item : node.items) list.push_back(ToJsonNode(item));
      return list;
    }
    case ConfigNode::Kind::kMap: {
      ordered_json map = ordered_json::object();
      for (const ConfigEntry& entry : node.entries) map[entry.key] = ToJsonNode(entry.value);
      return map;
    }
    case ConfigNode::Kind::kScalar:
      break;
  }
  if (node.quoted) return node.text;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (!node.LooksNumber()) return node.text;
  if (node.text.find_first_of(".eE") == std::string::npos) return std::stoll(node.text);
  return std::stod(node.text);
}

struct NamedList {
  const char* name;
  std::vector<KairNote> KairTranslation::* notes;
};
constexpr NamedList kLists[] = {{"honoured", &KairTranslation::honoured},
                                {"mapped", &KairTranslation::mapped},
                                {"ignored", &KairTranslation::ignored},
                                {"refused", &KairTranslation::refused}};

}  // namespace

std::string KairText(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return "null";
    case ConfigNode::Kind::kScalar:
      return node.text;
    case ConfigNode::Kind::kList: {
      std::vector<std::string> items;
      for (const ConfigNode& item : node.items) items.push_back(KairText(item));
      return "[" + Join(items, ", ") + "]";
    }
    case ConfigNode::Kind::kMap: {
      std::vector<std::string> items;
      for (const ConfigEntry& entry : node.entries) items.push_back(entry.key + ": " + KairText(entry.value));
      return "{" + Join(items, ", ") + "}";
    }
  }
  return "";
}

void SetKair(ConfigNode* root, std::string_view key, ConfigNode value) {
  ConfigNode* at = root;
  at->kind = ConfigNode::Kind::kMap;
  for (const std::string& part : Split(key, '.')) {
    auto it = std::ranges::find(at->entries, part, &ConfigEntry::key);
    if (it == at->entries.end()) it = at->entries.insert(it, ConfigEntry{part, {}, {}});
    if (it->value.kind != ConfigNode::Kind::kMap) it->value = ConfigNode{.kind = ConfigNode::Kind::kMap};
    at = &it->value;
  }
  *at = std::move(value);
}

Result<KairTranslation> TranslateKair(std::string_view text, const std::string& file) {
  Result<ConfigTree> tree = ConfigTree::Parse(text, file, ConfigTree::Format::kJson);
  if (!tree.ok()) return tree.status();
  const std::vector<KairPhase> phases = SplitKair(tree->root());
  Result<KairTranslation> whole = Walker(file).Run(tree->root(), tree->errors());
  if (!whole.ok() || phases.empty()) return whole;
  std::vector<ConfigNode> settings;
  for (const KairPhase& phase : phases) {
    Result<KairTranslation> one = Walker(file).Run(phase.options, {}, phase);
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

Status KairTranslation::Check() const {
  if (refused.empty()) return Status::Ok();
  std::vector<std::string> lines;
  for (const KairNote& note : refused) {
    lines.push_back(fmt::format("{}:{} {}{}: {}", file, note.line > 0 ? fmt::format("{}:", note.line) : "", note.key,
                                note.value.empty() ? "" : fmt::format(" = {}", note.value), note.reason));
  }
  return Status(Code::kUsage,
                fmt::format("{} of the option file cannot be honoured:\n{}",
                            Count(static_cast<int64_t>(refused.size()), "key"), Join(lines, "\n")),
                "change or remove them; lockstep config vrt --opt FILE shows what every key becomes");
}

std::string KairTranslation::Table(const std::string& prefix) const {
  std::string out;
  for (const NamedList& list : kLists) {
    const std::vector<KairNote>& notes = this->*list.notes;
    out += fmt::format("{}{} ({})\n", prefix, list.name, notes.size());
    for (const KairNote& note : notes) {
      out += fmt::format("{}  {}{}{}{}\n", prefix, note.key, note.value.empty() ? "" : " = " + note.value,
                         note.to.empty() ? "" : " -> " + note.to, note.reason.empty() ? "" : ": " + note.reason);
    }
  }
  out += fmt::format("{}derived\n", prefix);
  for (const KairDerived& one : derived) {
    out += fmt::format("{}  {} = {}: {}\n", prefix, one.name, one.value, one.reason);
  }
  return out;
}

std::string KairTranslation::Yaml() const {
  return fmt::format("# From {}, by lockstep config vrt --opt.\n{}{}", file, Table("# "), WriteYaml(settings));
}

std::string KairTranslation::Json() const {
  ordered_json document = {{"file", file}, {"task", task}};
  for (const NamedList& list : kLists) {
    ordered_json notes = ordered_json::array();
    for (const KairNote& note : this->*list.notes) {
      notes.push_back(
          {{"key", note.key}, {"value", note.value}, {"to", note.to}, {"reason", note.reason}, {"line", note.line}});
    }
    document[list.name] = std::move(notes);
  }
  ordered_json more = ordered_json::array();
  for (const KairDerived& one : derived) {
    more.push_back({{"name", one.name}, {"value", one.value}, {"reason", one.reason}});
  }
  document["derived"] = std::move(more);
  document["config"] = ToJsonNode(settings);
  return document.dump(2) + "\n";
}

}  // namespace lockstep::recipes
