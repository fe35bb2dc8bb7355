// YAML with the places of its values kept. Templates ({{ ... }}) are read as if they were plain words. yaml-cpp throws;
// nothing leaves these functions. Any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "lint/fact.h"
#include "lint/shell_reader.h"

namespace lockstep::lint {

class YamlText {
 public:
  // `line`: of the first line of the text in its file.
  static Result<YamlText> Read(std::string_view text, int line);

  const std::vector<YAML::Node>& documents() const { return documents_; }
  int Line(const YAML::Node& node) const { return node.Mark().line < 0 ? line_ : node.Mark().line + line_; }
  int Column(const YAML::Node& node) const { return node.Mark().column < 0 ? 1 : node.Mark().column + 1; }
  // A scalar as a word of a command line.
  ShellWord Word(const YAML::Node& node) const;
  // The first character of a scalar's text: below the '|' of a block, behind the quote of a string.
  void TextPlace(const YAML::Node& node, int& line, int& column) const;
  // A scalar that is shell text, its lines where they stand in the file: what YAML folds into one line becomes a line
  // with a continuation. `left`: the column at which lines but the first begin.
  std::string ShellText(const YAML::Node& node, int& line, int& column, int& left) const;

 private:
  std::string Folded(size_t row, size_t& indent) const;
  std::string Quoted(size_t row, size_t at) const;

  std::vector<std::string> lines_;  // as they were loaded
  std::vector<YAML::Node> documents_;
  int line_ = 1;
};

// Whether an unquoted scalar is a number or a truth value to YAML, not a string.
bool NoString(const YAML::Node& node);

// The value of a key of a map, merged ones (<<) included; an undefined node else. Never throws.
YAML::Node Child(const YAML::Node& map, const char* key);
std::string Scalar(const YAML::Node& node);

// Variables and commands anywhere in a tree (yaml_settings.cc). `containers_apart`: those of containers are read
// elsewhere.
void ReadSettings(const YamlText& yaml, const YAML::Node& node, bool containers_apart, Unit& unit,
                  std::vector<Unit>& others);

}  // namespace lockstep::lint
