#include "foreign/translation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.h"

namespace lockstep::foreign {
namespace {

using nlohmann::ordered_json;
using Kind = ConfigNode::Kind;

struct TypeRow {
  char letter;
  const char* words;
};
constexpr TypeRow kTypes[] = {{'b', "true or false"},
                              {'i', "a whole number"},
                              {'u', "a whole number, 0 or more"},
                              {'p', "a whole number above 0"},
                              {'n', "a number"},
                              {'s', "a string"},
                              {'l', "a list"},
                              {'g', "a whole number or a list"},
                              {'o', "keys in braces"}};

bool IsWhole(const ConfigNode& node, double least) {
  const std::optional<double> value = NumberOf(node);
  // Beyond 2^53 a double no longer counts elements.
  return value && std::floor(*value) == *value && *value >= least && *value < 0x1p53;
}

bool FitsType(const ConfigNode& node, char type) {
  const bool scalar = node.kind == Kind::kScalar;
  const bool number = scalar && !node.quoted && node.LooksNumber();
  const bool digits = number && node.text.find_first_of(".eE") == std::string::npos;
  switch (type) {
    case 'b':
      return scalar && !node.quoted && (node.text == "true" || node.text == "false");
    case 'i':
      return digits;
    case 'u':
    case 'p':
      return number && IsWhole(node, type == 'p' ? 1 : 0);
    case 'n':
      return number;
    case 's':
      return scalar && node.quoted;
    case 'l':
      return node.kind == Kind::kList;
    case 'g':
      return digits || node.kind == Kind::kList;
    case 'o':
      return node.kind == Kind::kMap;
    default:
      return true;
  }
}

bool HasKeysBelow(const std::vector<KeyRow>& rows, const KeyRow& row) {
  return row.type == 'o' || std::ranges::any_of(rows, [&](const KeyRow& key) {
           return key.path.starts_with(row.path + ".") && !row.path.ends_with('*');
         });
}

struct NamedNotes {
  const char* name;
  std::vector<Note> Translation::* notes;
};
constexpr NamedNotes kNoteLists[] = {{"honoured", &Translation::honoured},
                                     {"mapped", &Translation::mapped},
                                     {"ignored", &Translation::ignored},
                                     {"refused", &Translation::refused}};

}  // namespace

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::optional<double> NumberOf(const ConfigNode& node) {
  if (!node.LooksNumber()) return std::nullopt;
  const char* begin = node.text.data() + (node.text.front() == '+' ? 1 : 0);
  const char* end = node.text.data() + node.text.size();
  double value = 0;
  const auto read = std::from_chars(begin, end, value);
  return read.ec == std::errc() && read.ptr == end ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> WholeOf(const ConfigNode& node) {
  constexpr double kMost = 0x1p62;
  const std::optional<double> number = NumberOf(node);
  return number ? std::optional<int64_t>(std::llround(std::clamp(*number, -kMost, kMost))) : std::nullopt;
}

std::string ValueText(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kScalar:
      return node.text;
    case Kind::kList: {
      std::vector<std::string> items;
      for (const ConfigNode& item : node.items) items.push_back(ValueText(item));
      return "[" + Join(items, ", ") + "]";
    }
    case Kind::kMap: {
      std::vector<std::string> items;
      for (const ConfigEntry& entry : node.entries) items.push_back(entry.key + ": " + ValueText(entry.value));
      return "{" + Join(items, ", ") + "}";
    }
  }
  return "";
}

ConfigNode Scalar(std::string text, bool quoted) {
  return {.kind = Kind::kScalar, .text = std::move(text), .quoted = quoted};
}

void SetKey(ConfigNode* root, std::string_view key, ConfigNode value) {
  ConfigNode* at = root;
  at->kind = Kind::kMap;
  for (const std::string& part : Split(key, '.')) {
    auto it = std::ranges::find(at->entries, part, &ConfigEntry::key);
    if (it == at->entries.end()) it = at->entries.insert(it, ConfigEntry{part, {}, {}});
    if (it->value.kind != Kind::kMap) it->value = ConfigNode{.kind = Kind::kMap};
    at = &it->value;
  }
  *at = std::move(value);
}

const ConfigNode* FindKey(const ConfigNode& root, std::string_view key) {
  const ConfigNode* at = &root;
  for (const std::string& part : Split(key, '.')) {
    at = at->Find(part);
    if (at == nullptr) return nullptr;
  }
  return at;
}

const std::string* AllowedSpelling(const KeyRow& row, const ConfigNode& value) {
  const std::string text = LowerCase(ValueText(value));
  const auto same = [&](const std::string& one) {
    if (LowerCase(one) == text) return true;
    const std::optional<double> number = NumberOf(value);
    return number && number == NumberOf(Scalar(one));
  };
  const auto found = std::ranges::find_if(row.allowed, same);
  return found == row.allowed.end() ? nullptr : &*found;
}

bool IsAllowed(const KeyRow& row, const ConfigNode& value) {
  return row.allowed.empty() || AllowedSpelling(row, value) != nullptr;
}

bool Translation::Take(Note note, const KeyRow& row, const ConfigNode& value) {
  using Fate = KeyRow::Fate;
  const bool null = value.kind == Kind::kNull;
  const bool allowed = IsAllowed(row, value);
  if (row.fate == Fate::kSecret) {
    note.value.clear();
    const bool empty = null || value.text.empty();
    note.reason =
        empty ? "no key, as it should be"
              : fmt::format("a secret in a file: {}, put it into {} and take it out of the file", row.why, row.to);
    note.to.clear();
    (empty ? ignored : refused).push_back(std::move(note));
    return false;
  }
  if (row.fate == Fate::kRefused) {
    const bool off = null || (!row.allowed.empty() && allowed);
    if (off) note.reason = "off";
    (off ? ignored : refused).push_back(std::move(note));
    return false;
  }
  if (!null && !allowed) {
    const std::string& why = row.otherwise.empty() ? row.why : row.otherwise;
    std::vector<std::string> expected = row.allowed;
    std::ranges::replace(expected, std::string(), std::string("\"\""));
    note.reason = fmt::format("{}{}expected {}", why, why.empty() ? "" : "; ", Join(expected, ", "));
    refused.push_back(std::move(note));
    return false;
  }
  const bool taken = row.fate != Fate::kIgnored;
  (!taken ? ignored : row.fate == Fate::kHonoured ? honoured : mapped).push_back(std::move(note));
  return taken && row.copied && !null;
}

void Translation::Refuse(const std::string& key, const ConfigNode* value, const std::string& reason) {
  refused.push_back(
      {key, value == nullptr ? "" : ValueText(*value), "", reason, value == nullptr ? 0 : value->where.line});
}

void Translation::Set(std::string_view key, ConfigNode value, const ConfigLocation& where) {
  value.where = where;
  for (ConfigNode& item : value.items) item.where = where;
  SetKey(&settings, key, std::move(value));
}

Status Translation::Check() const {
  if (refused.empty()) return Status::Ok();
  std::vector<std::string> lines;
  for (const Note& note : refused) {
    lines.push_back(fmt::format(
        "{}:{} {}{}: {}", note.file.empty() ? file : note.file, note.line > 0 ? fmt::format("{}:", note.line) : "",
        note.key, note.value.empty() ? "" : fmt::format(" = {}", Printable(note.value, 80)), note.reason));
  }
  return Status(Code::kUsage,
                fmt::format("{} of the {} cannot be honoured:\n{}", Count(static_cast<int64_t>(refused.size()), "key"),
                            kind, Join(lines, "\n")),
                fmt::format("change or remove them; {} shows what every key becomes", command));
}

std::string Translation::Table(const std::string& prefix) const {
  std::string out;
  for (const NamedNotes& list : kNoteLists) {
    const std::vector<Note>& notes = this->*list.notes;
    out += fmt::format("{}{} ({})\n", prefix, list.name, notes.size());
    for (const Note& note : notes) {
      out += fmt::format("{}  {}{}{}{}\n", prefix, note.key, note.value.empty() ? "" : " = " + note.value,
                         note.to.empty() ? "" : " -> " + note.to, note.reason.empty() ? "" : ": " + note.reason);
    }
  }
  out += fmt::format("{}derived\n", prefix);
  for (const Derived& one : derived) {
    out += fmt::format("{}  {} = {}: {}\n", prefix, one.name, one.value, one.reason);
  }
  return out;
}

std::string Translation::Yaml() const {
  std::string by = command.substr(0, command.rfind(' '));  // without FILE
  return fmt::format("# From {}, by {}.\n{}{}", file, by, Table("# "), WriteYaml(settings));
}

void Translation::AddLists(ordered_json* document) const {
  for (const NamedNotes& list : kNoteLists) {
    ordered_json notes = ordered_json::array();
    for (const Note& note : this->*list.notes) {
      notes.push_back(
          {{"key", note.key}, {"value", note.value}, {"to", note.to}, {"reason", note.reason}, {"line", note.line}});
      if (!note.file.empty()) notes.back()["file"] = note.file;
    }
    (*document)[list.name] = std::move(notes);
  }
  ordered_json more = ordered_json::array();
  for (const Derived& one : derived) {
    more.push_back({{"name", one.name}, {"value", one.value}, {"reason", one.reason}});
  }
  (*document)["derived"] = std::move(more);
}

void KeyWalk::Run(const ConfigNode& map, const std::string& above) {
  constexpr size_t kMostErrors = 20;  // a file of something else has thousands
  for (const ConfigEntry& entry : map.entries) {
    if (errors_.size() >= kMostErrors) return;
    const std::string path = above.empty() ? entry.key : above + "." + entry.key;
    const KeyRow* row = lookup_(path);
    if (row == nullptr) {
      Unknown(path, entry);
      continue;
    }
    const bool fits =
        entry.value.kind == Kind::kNull || FitsType(entry.value, row->type) || (also_fits_ && also_fits_(entry.value));
    if (!fits) {
      const auto* type = std::ranges::find(kTypes, row->type, &TypeRow::letter);
      errors_.push_back(fmt::format("{}: {}: expected {}, found {}", entry.where.ToString(), path, type->words,
                                    row->fate == KeyRow::Fate::kSecret ? "something else" : entry.value.Describe()));
    } else if (entry.value.kind == Kind::kMap && HasKeysBelow(rows_, *row)) {
      Run(entry.value, path);
    } else {
      take_(path, entry, *row);
    }
  }
}

void KeyWalk::Unknown(const std::string& path, const ConfigEntry& entry) {
  std::vector<std::string> names;
  for (const KeyRow& key : rows_) names.push_back(key.path);
  std::string hint;
  const std::string name = path.substr(path.rfind('.') + 1);
  for (const std::string& known : names) {  // the right name in the wrong section
    if (hint.empty() && (known.ends_with("." + name) || known == name)) {
      hint = fmt::format(" (did you mean '{}'?)", known);
    }
  }
  const std::string spelled = spell_ ? spell_(path) : path;
  if (hint.empty()) hint = DidYouMean(spelled, names);
  // As the file has it: "datasets.train", not "datasets.*".
  const std::vector<std::string> own = Split(path, '.'), parts = Split(spelled, '.');
  for (size_t i = 0; i < std::min(own.size(), parts.size()); ++i) {
    const size_t star = parts[i] == "*" ? hint.find('*') : std::string::npos;
    if (star != std::string::npos) hint.replace(star, 1, own[i]);
  }
  errors_.push_back(fmt::format("{}: unknown key '{}'{}", entry.where.ToString(), path, hint));
}

}  // namespace lockstep::foreign
