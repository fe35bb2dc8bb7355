#include "lint/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/text.h"

namespace lockstep::lint {
namespace {

// Template expressions become words of the same length that are no values; a line of nothing else becomes blank.
std::string WithoutTemplates(std::string_view text) {
  std::string plain(text);
  for (size_t open = plain.find("{{"); open != std::string::npos; open = plain.find("{{", open + 1)) {
    const size_t close = plain.find("}}", open);
    if (close == std::string::npos) break;
    const size_t start = plain.rfind('\n', open) == std::string::npos ? 0 : plain.rfind('\n', open) + 1;
    const size_t end = std::min(plain.find('\n', close), plain.size());
    const bool alone = Trim(std::string_view(plain).substr(start, open - start)).empty() &&
                       Trim(std::string_view(plain).substr(close + 2, end - close - 2)).empty();
    for (size_t i = open; i < close + 2; ++i) {
      if (plain[i] != '\n') plain[i] = alone ? ' ' : '$';
    }
    open = close;
  }
  // A line of blanks that is longer than those below it is an error in a block of text.
  std::vector<std::string> lines = Split(plain, '\n');
  for (std::string& line : lines) {
    if (Trim(line).empty()) line.clear();
  }
  return Join(lines, "\n");
}

constexpr size_t kMostDocuments = 200;

// One document at a time: YAML::LoadAll never ends on some broken text. Each is given the lines before it as empty
// ones, so that its marks are those of the whole.
std::vector<YAML::Node> LoadDocuments(const std::string& text) {
  std::vector<YAML::Node> documents;
  size_t start = 0;
  size_t lines_before = 0;
  while (start < text.size() && documents.size() < kMostDocuments) {
    size_t end = text.find("\n---", start);
    end = end == std::string::npos ? text.size() : end + 1;
    documents.push_back(YAML::Load(std::string(lines_before, '\n') + text.substr(start, end - start)));
    lines_before += static_cast<size_t>(
        std::count(text.begin() + static_cast<ptrdiff_t>(start), text.begin() + static_cast<ptrdiff_t>(end), '\n'));
    start = end;
  }
  return documents;
}

}  // namespace

Result<YamlText> YamlText::Read(std::string_view text, int line) {
  YamlText yaml;
  yaml.line_ = line;
  std::string why;
  // A line of a template may be YAML by chance, and hide all that follows: without them first.
  const bool has_templates = text.find("{{") != std::string_view::npos;
  for (const bool templates : {has_templates, !has_templates}) {
    try {
      const std::string loaded = templates ? WithoutTemplates(text) : std::string(text);
      yaml.documents_ = LoadDocuments(loaded);
      yaml.lines_ = Split(loaded, '\n');
      return yaml;
    } catch (const YAML::Exception& error) {
      why = fmt::format("line {}: {}", error.mark.line + line, error.msg);
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (!has_templates) break;
  }
  return Status(Code::kUsage, "no YAML: " + why);
}

void YamlText::TextPlace(const YAML::Node& node, int& line, int& column) const {
  line = Line(node);
  column = Column(node);
  const size_t row = static_cast<size_t>(std::max(node.Mark().line, 0));
  if (row >= lines_.size()) return;
  const std::string& text = lines_[row];
  const size_t at = static_cast<size_t>(std::max(node.Mark().column, 0));
  const char first = at < text.size() ? text[at] : ' ';
  // Behind a tag or an anchor the mark of a block ends its line.
  const std::string_view rest = Trim(std::string_view(text).substr(std::min(at, text.size())));
  const size_t bar = rest.find_last_of("|>");
  const bool marked = (first == '!' || first == '&') && bar != std::string_view::npos && bar + 3 > rest.size();
  if (first == '|' || first == '>' || marked) {
    ++line;
    size_t indent = 0;
    for (size_t i = row + 1; i < lines_.size(); ++i) {
      indent = lines_[i].find_first_not_of(' ');
      if (indent != std::string::npos) break;
    }
    column = static_cast<int>(indent == std::string::npos ? 0 : indent) + 1;
  } else if (first == '"' || first == '\'') {
    ++column;
  }
}

// The lines of a block after '>', each but the last of a paragraph continued.
std::string YamlText::Folded(size_t row, size_t& indent) const {
  std::string text;
  indent = std::string::npos;
  for (size_t i = row + 1; i < lines_.size(); ++i) {
    const std::string_view line = lines_[i];
    const size_t start = line.find_first_not_of(" \r");
    if (start == std::string_view::npos) {
      text += '\n';
      continue;
    }
    if (indent == std::string::npos) indent = start;
    if (start < indent) break;
    const std::string_view own = Trim(line.substr(indent));
    const std::string_view next = i + 1 < lines_.size() ? std::string_view(lines_[i + 1]) : std::string_view();
    const size_t next_start = next.find_first_not_of(" \r");
    const bool joined = start == indent && next_start == indent && own.back() != '\\';
    text += std::string(line.substr(indent, line.find_last_not_of(" \r") + 1 - indent));
    text += joined ? " \\\n" : "\n";
  }
  if (indent == std::string::npos) indent = 0;
  return text;
}

// The text behind a quote; empty where it is not plain what the shell would see.
std::string YamlText::Quoted(size_t row, size_t at) const {
  const char quote = lines_[row][at];
  std::string text;
  for (size_t i = row; i < lines_.size() && i < row + 1000; ++i) {
    std::string_view line = lines_[i];
    for (size_t j = i == row ? at + 1 : 0; j < line.size(); ++j) {
      const char c = line[j];
      const char next = j + 1 < line.size() ? line[j + 1] : '\n';
      if (c == quote && quote == '\'' && next == '\'') {
        text += c;
        ++j;
      } else if (c == quote) {
        return text;
      } else if (quote == '"' && c == '\\' && next == 'n') {
        text += "; ";  // two characters, as in the file
        ++j;
      } else if (quote == '"' && c == '\\' && next != '\n' && next != '\r') {
        if (std::string_view("\"\\/").find(next) == std::string_view::npos) return "";
        text += next;
        ++j;
      } else if (c != '\r') {
        text += c;
      }
    }
    const bool continued = !text.empty() && text.back() == '\\';
    text += continued ? "\n" : " \\\n";
  }
  return "";
}

std::string YamlText::ShellText(const YAML::Node& node, int& line, int& column, int& left) const {
  TextPlace(node, line, column);
  left = column;
  const size_t row = static_cast<size_t>(std::max(node.Mark().line, 0));
  const size_t at = static_cast<size_t>(std::max(node.Mark().column, 0));
  const std::string value = Scalar(node);
  if (row >= lines_.size() || at >= lines_[row].size()) return value;
  const char first = lines_[row][at];
  if (first == '>') {
    size_t indent = 0;
    std::string text = Folded(row, indent);
    column = left = static_cast<int>(indent) + 1;
    return text;
  }
  if (first == '"' || first == '\'') {
    std::string text = Quoted(row, at);
    const bool comment = text.find('#') != std::string::npos && value.find('\n') != std::string::npos;
    if (!text.empty() && !comment) {
      left = 1;
      return text;
    }
  }
  return value;
}

bool NoString(const YAML::Node& node) {
  if (!node.IsDefined() || !node.IsScalar() || node.Tag() != "?") return false;
  std::string text = node.Scalar();
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && text.find_first_of("0123456789") != text.npos) {
    return true;
  }
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text == "true" || text == "false" || text == "yes" || text == "no" || text == "on" || text == "off";
}

ShellWord YamlText::Word(const YAML::Node& node) const {
  ShellWord word;
  word.value = word.text = Scalar(node);
  word.line = Line(node);
  word.column = Column(node);
  // $(NAME) is Kubernetes' own, {{ }} a template's.
  word.known = word.value.find("$") == std::string::npos && word.value.find("{{") == std::string::npos;
  return word;
}

namespace {

YAML::Node ChildIn(const YAML::Node& map, std::string_view key, int depth) {
  const YAML::Node nothing(YAML::NodeType::Undefined);
  if (!map.IsDefined() || !map.IsMap() || depth > 8) return nothing;  // a map may merge itself
  YAML::Node merged = nothing;
  for (const auto& pair : map) {
    if (!pair.first.IsScalar()) continue;
    if (pair.first.Scalar() == key) return pair.second;
    if (pair.first.Scalar() == "<<") merged.reset(pair.second);
  }
  if (merged.IsDefined() && merged.IsSequence()) {
    for (const YAML::Node& one : merged) {
      const YAML::Node found = ChildIn(one, key, depth + 1);
      if (found.IsDefined()) return found;
    }
  }
  return ChildIn(merged, key, depth + 1);
}

}  // namespace

YAML::Node Child(const YAML::Node& map, const char* key) {
  try {
    return ChildIn(map, key, 0);
  } catch (const std::exception&) {
    return YAML::Node(YAML::NodeType::Undefined);
  }
}

std::string Scalar(const YAML::Node& node) {
  try {
    return node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace lockstep::lint
