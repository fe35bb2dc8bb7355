#include "base/config_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "base/digits.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kMaxBytes = 4u << 20;
constexpr size_t kMaxNodes = 100000;

using Source = std::shared_ptr<const std::string>;

void MergeInto(const ConfigNode& over, ConfigNode* at) {
  if (over.kind != ConfigNode::Kind::kMap || at->kind != ConfigNode::Kind::kMap) {
    *at = over;
    return;
  }
  for (const ConfigEntry& entry : over.entries) {
    const auto it = std::find_if(at->entries.begin(), at->entries.end(),
                                 [&](const ConfigEntry& one) { return one.key == entry.key; });
    if (it == at->entries.end()) {
      at->entries.push_back(entry);
    } else {
      MergeInto(entry.value, &it->value);
    }
  }
}

size_t CountNodes(const ConfigNode& node) {
  size_t count = 1;
  for (const ConfigNode& item : node.items) count += CountNodes(item);
  for (const ConfigEntry& entry : node.entries) count += CountNodes(entry.value);
  return count;
}

// Builds the tree from yaml-cpp's events, because its own tree forgets duplicate keys, aliases and quotes. Refusals are
// thrown as yaml-cpp's exceptions, which carry the mark; ParseDocument catches all.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(Source source) : source_(std::move(source)) {}

  ConfigNode TakeRoot() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    ConfigNode node;
    node.text = "null";
    node.where = At(mark);
    Add(mark, anchor, std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    ConfigNode node;
    node.kind = ConfigNode::Kind::kScalar;
    node.text = value;
    node.quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!node.quoted) RefuseTag(mark, tag);
    node.where = At(mark);
    Add(mark, anchor, std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    auto it = anchors_.find(anchor);
    if (it == anchors_.end()) throw YAML::ParserException(mark, "this alias refers to itself");
    nodes_ += CountNodes(it->second);
    CheckBudget(mark);
    Add(mark, 0, it->second);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, ConfigNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, ConfigNode::Kind::kMap);
  }
  void OnMapEnd() override {
    Merge();
    Close();
  }

 private:
  struct Frame {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    YAML::Mark mark;
    std::optional<ConfigEntry> pending;  // a key waiting for its value
    bool pending_merge = false;
    std::vector<ConfigNode> merges;  // values of "<<"
  };

  ConfigLocation At(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }

  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw YAML::ParserException(mark, "tags such as !!int are not used here: the key decides the type");
  }

  void CheckBudget(const YAML::Mark& mark) const {
    if (nodes_ > kMaxNodes) {
      throw YAML::ParserException(mark, fmt::format("more than {} values (aliases counted)", kMaxNodes));
    }
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, ConfigNode::Kind kind) {
    RefuseTag(mark, tag);
    if (!stack_.empty() && stack_.back().node.kind == ConfigNode::Kind::kMap && !stack_.back().pending) {
      throw YAML::ParserException(mark, "a key must be plain text");
    }
    Frame frame;
    frame.node.kind = kind;
    frame.node.where = At(mark);
    frame.anchor = anchor;
    frame.mark = mark;
    stack_.push_back(std::move(frame));
  }

  void Close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    Add(frame.mark, frame.anchor, std::move(frame.node));
  }

  void Add(const YAML::Mark& mark, YAML::anchor_t anchor, ConfigNode node) {
    ++nodes_;
    CheckBudget(mark);
    if (anchor != 0) anchors_[anchor] = node;
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& top = stack_.back();
    if (top.node.kind == ConfigNode::Kind::kList) {
      top.node.items.push_back(std::move(node));
    } else if (!top.pending) {
      if (node.kind == ConfigNode::Kind::kList || node.kind == ConfigNode::Kind::kMap) {
        throw YAML::ParserException(mark, "a key must be plain text");
      }
      top.pending_merge = node.text == "<<" && !node.quoted;
      top.pending = ConfigEntry{node.text, node.where, {}};
    } else {
      if (top.pending_merge) {
        TakeMerge(mark, &top, std::move(node));
      } else {
        top.pending->value = std::move(node);
        top.node.entries.push_back(std::move(*top.pending));
      }
      top.pending.reset();
    }
  }

  static void TakeMerge(const YAML::Mark& mark, Frame* top, ConfigNode node) {
    if (node.kind == ConfigNode::Kind::kMap) {
      top->merges.push_back(std::move(node));
      return;
    }
    bool all_maps = node.kind == ConfigNode::Kind::kList;
    for (const ConfigNode& item : node.items) all_maps = all_maps && item.kind == ConfigNode::Kind::kMap;
    if (!all_maps) throw YAML::ParserException(mark, "'<<' takes a section or a list of sections");
    for (ConfigNode& item : node.items) top->merges.push_back(std::move(item));
  }

  // Keys written out win over merged ones, earlier merges over later.
  void Merge() {
    Frame& top = stack_.back();
    for (ConfigNode& merge : top.merges) {
      for (ConfigEntry& entry : merge.entries) {
        if (top.node.Find(entry.key) == nullptr) top.node.entries.push_back(std::move(entry));
      }
    }
    top.merges.clear();
  }

  Source source_;
  ConfigNode root_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, ConfigNode> anchors_;
  size_t nodes_ = 0;
};

// yaml-cpp refuses the surrogate pairs JSON writes for characters beyond U+FFFF. The text is valid JSON already.
std::string JoinSurrogates(std::string text) {
  std::string out;
  auto hex4 = [&](size_t at) -> uint32_t {
    uint32_t value = 0;
    if (at + 4 > text.size()) return 0;
    auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 4, value, 16);
    return error == std::errc() && end == text.data() + at + 4 ? value : 0;
  };
  for (size_t i = 0; i < text.size();) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      out += text[i++];
      continue;
    }
    uint32_t high = text[i + 1] == 'u' ? hex4(i + 2) : 0;
    if (high < 0xd800 || high > 0xdbff || i + 12 > text.size()) {
      out += text[i++];
      out += text[i++];
      continue;
    }
    uint32_t point = 0x10000 + ((high - 0xd800) << 10) + (hex4(i + 8) - 0xdc00);
    out += static_cast<char>(0xf0 | point >> 18);
    out += static_cast<char>(0x80 | (point >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (point & 0x3f));
    i += 12;
  }
  return out;
}

// Whether a line belongs to a text below "key: |" or "key: >", where a tab is a character like others.
bool IsLineOfText(const std::vector<std::string>& lines, size_t line) {
  const size_t indent = lines[line].find_first_not_of(' ');
  while (line-- > 0) {
    const size_t first = lines[line].find_first_not_of(' ');
    if (first == std::string::npos || first >= indent) continue;
    const std::string_view head = Trim(lines[line]);
    const size_t last = head.find_last_not_of("+-0123456789");
    return last != std::string_view::npos && (head[last] == '|' || head[last] == '>');
  }
  return false;
}

// What most likely brought a word of the YAML library about; empty: its words say enough.
std::string SyntaxHint(std::string_view text, const YAML::Exception& error) {
  const std::vector<std::string> lines = Split(text, '\n');
  // The library sees a mistake in the line that holds it, or in the next one.
  const size_t seen = static_cast<size_t>(std::max(0, error.mark.line));
  for (size_t i = seen > 0 ? seen - 1 : 0; i <= seen && i < lines.size(); ++i) {
    const size_t first = lines[i].find_first_not_of(' ');
    if (first != std::string::npos && lines[i][first] == '\t' && !IsLineOfText(lines, i)) {
      return fmt::format("line {} begins with a tab; YAML is indented with blanks", i + 1);
    }
  }
  static const std::pair<std::string_view, const char*> hints[] = {
      {"illegal map value", "indent the keys of a section alike, and put quotes around a value that holds ': '"},
      {"end of map not found", "indent the keys of a section alike"},
      {"end of sequence not found", "indent the items of a list alike"},
      {"end of map flow not found", "close what a '{' or a quote before it opens"},
      {"end of sequence flow not found", "close what a '[' or a quote before it opens"},
      {"illegal EOF in scalar", "close the quote"}};
  for (const auto& [words, hint] : hints) {
    if (error.msg.find(words) != std::string::npos) return hint;
  }
  return "";
}

Result<ConfigNode> ParseDocument(const std::string& text, const Source& source) {
  try {
    // The library takes a quote that nothing closes for closed by a line end that ends the file, and with it all keys
    // in between for text. Without that line end it is an error.
    if (const size_t last = text.find_last_not_of(" \t\r\n"); text.find_first_of("'\"") < last) {
      std::istringstream closed(text.substr(0, last + 1));
      Builder unused(source);
      YAML::Parser(closed).HandleNextDocument(unused);
    }
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Builder builder(source);
    if (!parser.HandleNextDocument(builder)) return ConfigNode{};
    ConfigNode root = builder.TakeRoot();
    Builder second(source);
    if (parser.HandleNextDocument(second)) {
      return Status(Code::kUsage, fmt::format("{}: holds several YAML documents, expected one", *source),
                    "keep one and remove the '---' line between them");
    }
    return root;
  } catch (const YAML::Exception& error) {
    ConfigLocation where{source, error.mark.line + 1, error.mark.column + 1};
    return Status(Code::kUsage, fmt::format("{}: {}", where.ToString(), Printable(error.msg, 300)),
                  SyntaxHint(text, error));
  } catch (const std::exception& error) {
    return Status(Code::kUsage, fmt::format("{}: not valid YAML: {}", *source, Printable(error.what(), 300)));
  }
}

void CollectDuplicates(ConfigNode* node, const std::string& path, std::vector<ConfigError>* errors) {
  std::unordered_map<std::string, ConfigLocation> first;
  std::vector<ConfigEntry> kept;
  for (ConfigEntry& entry : node->entries) {
    std::string key_path = path.empty() ? entry.key : path + "." + entry.key;
    auto [it, added] = first.emplace(entry.key, entry.where);
    if (!added) {
      errors->push_back({entry.where, key_path, fmt::format("given twice, first at {}", it->second.ToString())});
      continue;
    }
    CollectDuplicates(&entry.value, key_path, errors);
    kept.push_back(std::move(entry));
  }
  node->entries = std::move(kept);
  for (size_t i = 0; i < node->items.size(); ++i) {
    CollectDuplicates(&node->items[i], fmt::format("{}[{}]", path, i), errors);
  }
}

void MarkLoose(ConfigNode* node, const ConfigLocation& where) {
  node->where = where;
  node->loose = !node->quoted;
  for (ConfigNode& item : node->items) MarkLoose(&item, where);
  for (ConfigEntry& entry : node->entries) {
    entry.where = where;
    MarkLoose(&entry.value, where);
  }
}

struct PathStep {
  std::string key;
  std::optional<size_t> index;  // set: an item of a list
};

std::optional<std::vector<PathStep>> ParsePath(std::string_view path) {
  std::vector<PathStep> steps;
  for (const std::string& part : Split(path, '.')) {
    std::string_view rest = part;
    size_t bracket = rest.find('[');
    std::string_view key = rest.substr(0, bracket);
    if (key.empty()) return std::nullopt;
    steps.push_back({std::string(key), std::nullopt});
    rest.remove_prefix(key.size());
    while (!rest.empty()) {
      size_t close = rest.find(']');
      if (rest.front() != '[' || close == std::string_view::npos) return std::nullopt;
      const std::optional<size_t> index = ParseDigits<size_t>(rest.substr(1, close - 1));
      if (!index) return std::nullopt;
      steps.push_back({"", *index});
      rest.remove_prefix(close + 1);
    }
  }
  return steps;
}

}  // namespace

Result<ConfigTree> ConfigTree::Parse(std::string_view text, const std::string& source, Format format) {
  auto name = std::make_shared<const std::string>(source);
  if (text.size() > kMaxBytes) {
    return Status(Code::kUsage,
                  fmt::format("{}: {} bytes are too many for a config (at most {})", source, text.size(), kMaxBytes),
                  "check that this is the file you meant");
  }
  size_t nul = text.find('\0');
  if (!IsUtf8(text) || nul != std::string_view::npos) {
    return Status(Code::kUsage, fmt::format("{}: expected text in UTF-8, found other bytes", source),
                  "save the file as UTF-8");
  }
  std::string document(text);
  if (format == Format::kJson) {
    Result<std::string> plain = BlankJsonComments(text, source);
    if (!plain.ok()) return plain.status();
    if (Trim(*plain).empty()) {
      document.clear();
    } else {
      Result<nlohmann::json> valid = ParseJson(*plain, source);
      if (!valid.ok()) return valid.status();
      document = JoinSurrogates(std::move(*plain));
      // Tabs may indent JSON but not YAML; JSON's strings cannot hold raw ones.
      for (char& c : document) {
        if (c == '\t') c = ' ';
      }
    }
  }
  Result<ConfigNode> root = ParseDocument(document, name);
  if (!root.ok()) return root.status();
  ConfigTree tree;
  tree.root_ = std::move(*root);
  tree.root_.where.source = name;
  if (tree.root_.kind == ConfigNode::Kind::kNull) tree.root_.kind = ConfigNode::Kind::kMap;
  if (tree.root_.kind != ConfigNode::Kind::kMap) {
    return Status(Code::kUsage, fmt::format("{}: expected sections with keys at the top, found {}",
                                            tree.root_.where.ToString(), tree.root_.Describe()));
  }
  CollectDuplicates(&tree.root_, "", &tree.errors_);
  return tree;
}

Result<ConfigTree> ConfigTree::Load(const std::string& path) {
  Result<std::string> text = ReadFile(path, kMaxBytes);
  if (!text.ok()) return text.status().Context("config");
  bool json = path.ends_with(".json") || path.ends_with(".jsonc");
  return Parse(*text, path, json ? Format::kJson : Format::kYaml);
}

ConfigTree ConfigTree::Empty(const std::string& source) {
  ConfigTree tree;
  tree.root_.kind = ConfigNode::Kind::kMap;
  tree.root_.where.source = std::make_shared<const std::string>(source);
  return tree;
}

Status ConfigTree::Override(std::string_view assignment) {
  size_t equals = assignment.find('=');
  std::string_view path = Trim(assignment.substr(0, equals));
  std::optional<std::vector<PathStep>> steps = ParsePath(path);
  if (equals == std::string_view::npos || !steps) {
    return Status(Code::kUsage, fmt::format("--set: expected path.of.key=value, found '{}'", Printable(assignment)),
                  "for example --set train.steps=500");
  }
  if (!IsUtf8(assignment) || assignment.find('\0') != std::string_view::npos) {
    return Status(Code::kUsage, fmt::format("--set {}: expected text in UTF-8", Printable(path)));
  }
  ConfigLocation where{
      std::make_shared<const std::string>(fmt::format("command line (--set {})", Printable(assignment, 80))), 0, 0};
  std::string_view value = assignment.substr(equals + 1);
  ConfigNode node;
  if (!value.empty() && std::string_view("[{\"'").find(value.front()) != std::string_view::npos) {
    Result<ConfigNode> parsed = ParseDocument(std::string(value), where.source);
    if (!parsed.ok()) return parsed.status();
    node = std::move(*parsed);
    CollectDuplicates(&node, std::string(path), &errors_);
  } else {
    node.kind = ConfigNode::Kind::kScalar;
    node.text = value;
  }
  MarkLoose(&node, where);

  ConfigNode* at = &root_;
  for (const PathStep& step : *steps) {
    if (step.index) {
      if (at->kind != ConfigNode::Kind::kList || *step.index >= at->items.size()) {
        return Status(Code::kUsage, fmt::format("{}: there is no item [{}], found {}", where.ToString(), *step.index,
                                                at->Describe()));
      }
      at = &at->items[*step.index];
      continue;
    }
    if (at->kind == ConfigNode::Kind::kNull) at->kind = ConfigNode::Kind::kMap;
    if (at->kind != ConfigNode::Kind::kMap) {
      return Status(Code::kUsage, fmt::format("{}: '{}' has to stand in a section, found {}", where.ToString(),
                                              Printable(step.key), at->Describe()));
    }
    auto it = std::find_if(at->entries.begin(), at->entries.end(),
                           [&](const ConfigEntry& entry) { return entry.key == step.key; });
    if (it == at->entries.end()) {
      ConfigEntry entry{step.key, where, {}};
      entry.value.where = where;
      at->entries.push_back(std::move(entry));
      it = std::prev(at->entries.end());
    }
    at = &it->value;
  }
  *at = std::move(node);
  return Status::Ok();
}

ConfigNode ConfigTree::Take(std::string_view key) {
  const auto it = std::find_if(root_.entries.begin(), root_.entries.end(),
                               [&](const ConfigEntry& entry) { return entry.key == key; });
  if (it == root_.entries.end()) return {};
  ConfigNode taken = std::move(it->value);
  root_.entries.erase(it);
  return taken;
}

void ConfigTree::Merge(const ConfigNode& over) { MergeInto(over, &root_); }

}  // namespace lockstep
