#include "tune/yaml_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep::tune {
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
  return plain;
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
  yaml.lines_ = Split(text, '\n');
  std::string why;
  for (const bool templates : {false, true}) {
    try {
      yaml.documents_ = LoadDocuments(templates ? WithoutTemplates(text) : std::string(text));
      return yaml;
    } catch (const YAML::Exception& error) {
      why = fmt::format("line {}: {}", error.mark.line + line, error.msg);
    } catch (const std::exception& error) {
      why = error.what();
    }
    if (text.find("{{") == std::string_view::npos) break;
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
  if (first == '|' || first == '>') {
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

ShellWord YamlText::Word(const YAML::Node& node) const {
  ShellWord word;
  word.value = word.text = Scalar(node);
  word.line = Line(node);
  word.column = Column(node);
  // $(NAME) is Kubernetes' own, {{ }} a template's.
  word.known = word.value.find("$") == std::string::npos && word.value.find("{{") == std::string::npos;
  return word;
}

YAML::Node Child(const YAML::Node& map, const char* key) {
  try {
    if (map.IsDefined() && map.IsMap()) {
      for (const auto& pair : map) {
        if (pair.first.IsScalar() && pair.first.Scalar() == key) return pair.second;
      }
    }
  } catch (const std::exception&) {
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

std::string Scalar(const YAML::Node& node) {
  try {
    return node.IsDefined() && node.IsScalar() ? node.Scalar() : "";
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace lockstep::tune
