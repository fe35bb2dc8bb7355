// The parts of a configuration tree that need no parser: looking at nodes, describing them, writing them as YAML.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/config_tree.h"
#include "base/digits.h"
#include "base/text.h"

namespace lockstep {
namespace {

// Text that YAML and its many readers take for this string and nothing else, in block and flow context.
bool IsPlain(const std::string& text) {
  if (text.empty() || text.size() > 200) return false;
  for (char c : text) {
    bool safe =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_' || c == '/' || c == '.' || c == '-';
    if (!safe) return false;
  }
  char first = text.front();
  if (first == '-' || first == '.' || IsDigit(first)) return false;
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  for (std::string_view word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "inf", "nan"}) {
    if (lower == word) return false;
  }
  return true;
}

std::string Quoted(const std::string& text) {
  if (IsPlain(text)) return text;
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

std::string Flow(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::kNull:
      return "null";
    case ConfigNode::Kind::kScalar:
      return node.quoted ? Quoted(node.text) : node.text;
    case ConfigNode::Kind::kList: {
      std::vector<std::string> parts;
      for (const ConfigNode& item : node.items) parts.push_back(Flow(item));
      return "[" + Join(parts, ", ") + "]";
    }
    case ConfigNode::Kind::kMap: {
      std::vector<std::string> parts;
      for (const ConfigEntry& entry : node.entries) {
        if (!entry.unused) parts.push_back(Quoted(entry.key) + ": " + Flow(entry.value));
      }
      return "{" + Join(parts, ", ") + "}";
    }
  }
  return "null";
}

void Block(const ConfigNode& map, int indent, YamlComments comments, std::string* out) {
  for (const ConfigEntry& entry : map.entries) {
    out->append(static_cast<size_t>(indent), ' ');
    if (entry.unused) {
      *out += fmt::format("# {}: unused here; {}\n", entry.key, entry.comment);
      continue;
    }
    *out += Quoted(entry.key) + ":";
    const ConfigNode& value = entry.value;
    bool nested_list = false;
    for (const ConfigNode& item : value.items) nested_list = nested_list || item.kind == ConfigNode::Kind::kMap;
    if (value.kind == ConfigNode::Kind::kMap && !value.entries.empty()) {
      *out += "\n";
      Block(value, indent + 2, comments, out);
    } else if (nested_list) {
      *out += "\n";
      for (const ConfigNode& item : value.items) *out += fmt::format("{:{}}- {}\n", "", indent + 2, Flow(item));
    } else {
      std::string line = " " + Flow(value);
      if (comments == YamlComments::kShow && !entry.comment.empty()) {
        const size_t written = static_cast<size_t>(indent) + Quoted(entry.key).size() + 1 + line.size();
        line += std::string(written < 36 ? 36 - written : 2, ' ') + "# " + entry.comment;
      }
      *out += line + "\n";
    }
  }
}

}  // namespace

std::string ConfigLocation::ToString() const {
  if (source == nullptr) return "config";
  if (line <= 0) return *source;
  return fmt::format("{}:{}:{}", *source, line, column);
}

std::string ConfigError::ToString() const {
  return path.empty() ? fmt::format("{}: {}", where.ToString(), message)
                      : fmt::format("{}: {}: {}", where.ToString(), Printable(path), message);
}

const ConfigNode* ConfigNode::Find(std::string_view key) const {
  for (const ConfigEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

bool IsNumberText(std::string_view text) {
  size_t i = 0;
  auto digits = [&] {
    size_t begin = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i - begin;
  };
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
  size_t mantissa = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    mantissa += digits();
  }
  if (mantissa == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

bool IsNullText(std::string_view text) { return text == "null" || text == "~" || text == "Null" || text == "NULL"; }

bool ConfigNode::LooksNumber() const { return kind == Kind::kScalar && !quoted && IsNumberText(text); }

std::string ConfigNode::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kList:
      return fmt::format("a list of {}", items.size());
    case Kind::kMap:
      return "a section";
    case Kind::kScalar:
      break;
  }
  std::string shown = Printable(text, 60);
  if (loose) return fmt::format("'{}'", shown);
  if (LooksNumber()) return fmt::format("the number {}", shown);
  if (!quoted && (text == "true" || text == "false")) return fmt::format("the boolean {}", shown);
  return fmt::format("the string '{}'", shown);
}

namespace {

ConfigNode WithoutUnused(const ConfigNode& node) {
  ConfigNode kept = node;
  std::erase_if(kept.entries, [](const ConfigEntry& entry) { return entry.unused; });
  for (ConfigEntry& entry : kept.entries) entry.value = WithoutUnused(entry.value);
  for (ConfigNode& item : kept.items) item = WithoutUnused(item);
  return kept;
}

}  // namespace

std::string WriteYaml(const ConfigNode& whole, YamlComments comments) {
  const ConfigNode map = comments == YamlComments::kNone ? WithoutUnused(whole) : whole;
  std::string out;
  if (map.entries.empty()) return "{}\n";
  Block(map, 0, comments, &out);
  return out;
}

}  // namespace lockstep
