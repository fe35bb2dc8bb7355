// Environments, nccl.conf, and the output people paste into documents.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "base/env_file.h"
#include "base/text.h"
#include "lint/readers.h"
#include "lint/shell_lexer.h"
#include "lint/variables.h"

namespace lockstep::lint {
namespace {

Fact VariableAt(const std::string& name, const std::string& value, int line, int column) {
  Fact fact;
  fact.kind = "variable";
  fact.name = name;
  fact.value = value;
  fact.line = line;
  fact.column = column;
  return fact;
}

// The number that ends right before `unit`, as in "18.5s/it".
std::optional<double> NumberBefore(std::string_view text, std::string_view unit) {
  const size_t at = text.find(unit);
  if (at == std::string_view::npos) return std::nullopt;
  size_t end = at;
  while (end > 0 && text[end - 1] == ' ') --end;
  size_t start = end;
  while (start > 0 && ((text[start - 1] >= '0' && text[start - 1] <= '9') || text[start - 1] == '.')) --start;
  double number = 0;
  auto [stop, error] = std::from_chars(text.data() + start, text.data() + end, number);
  return error == std::errc() && stop == text.data() + end ? std::optional(number) : std::nullopt;
}

}  // namespace

Unit EnvironmentFacts(const Environment& env) {
  Unit unit;
  unit.dialect = "environment";
  for (const auto& [name, value] : env) unit.facts.push_back(VariableAt(name, value, 0, 0));
  return unit;
}

void ReadEnvironment(std::string_view text, Units& units, int line) {
  if (text.find('\0') != std::string_view::npos) {
    units.push_back(EnvironmentFacts(ParseEnvironment(text)));
    return;
  }
  Unit unit;
  unit.dialect = "environment";
  --line;
  for (const std::string& raw : Split(text, '\n')) {
    ++line;
    std::string_view row = raw;
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    const size_t start = row.find_first_not_of(" \t");
    if (start == std::string_view::npos || row[start] == '#') continue;
    std::string_view rest = row.substr(start);
    for (std::string_view word : {"export ", "declare -x ", "setenv "}) {
      if (rest.substr(0, word.size()) == word) rest = Trim(rest.substr(word.size()));
    }
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) continue;
    if (!IsName(rest.substr(0, equals)) && !Variables::Table().Meant(rest.substr(0, equals))) continue;
    std::string value(rest.substr(equals + 1));
    const bool quoted = value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
    // `declare -p` and `export -p` quote; an --env-file of Docker takes quotes as they are.
    if (quoted && rest.data() != row.data() + start) value = value.substr(1, value.size() - 2);
    unit.facts.push_back(
        VariableAt(std::string(rest.substr(0, equals)), value, line, static_cast<int>(rest.data() - row.data()) + 1));
  }
  units.push_back(std::move(unit));
}

// As NCCL reads it: everything before the first '=' is the name, everything behind it the value, blanks and quotes
// included; only a '#' in the first column makes a comment.
void ReadConf(std::string_view text, int line, Units& units) {
  Unit unit;
  unit.dialect = "conf";
  --line;
  for (const std::string& raw : Split(text, '\n')) {
    ++line;
    std::string_view row = raw;
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    if (row.empty() || row[0] == '#' || Trim(row).empty()) continue;
    const size_t equals = row.find('=');
    Fact shape;
    shape.kind = "shape";
    shape.name = "conf-line";
    shape.line = line;
    shape.column = 1;
    if (equals == std::string_view::npos) {
      shape.detail = Printable(row, 60) + " has no '='";
      unit.facts.push_back(std::move(shape));
      continue;
    }
    const std::string_view name = row.substr(0, equals);
    const std::string_view value = row.substr(equals + 1);
    if (!IsName(name)) {
      shape.detail = fmt::format("the name is '{}'", Printable(name, 60));
      unit.facts.push_back(std::move(shape));
      continue;
    }
    if (value != Trim(value) || (value.size() > 1 && (value[0] == '"' || value[0] == '\''))) {
      shape.detail =
          fmt::format("the value of {} is taken with its blanks and quotes: [{}]", name, Printable(value, 60));
      unit.facts.push_back(shape);
    }
    const size_t comment = value.find(" #");
    if (comment != std::string_view::npos) {
      shape.detail = fmt::format("a comment behind a value belongs to the value of {}", name);
      unit.facts.push_back(std::move(shape));
    }
    unit.facts.push_back(VariableAt(std::string(name), std::string(Trim(value)), line, 1));
  }
  units.push_back(std::move(unit));
}

void ReadPlainText(std::string_view text, int line, Units& units) {
  Unit unit;
  unit.dialect = "text";
  for (const std::string& row : Split(text, '\n')) {
    const std::optional<double> seconds = NumberBefore(row, "s/it");
    std::optional<double> rate = NumberBefore(row, "steps/s");
    if (!rate) rate = NumberBefore(row, "it/s");
    if (seconds && rate && *seconds > 0 && *rate > 0 && std::abs(*seconds * *rate - 1) > 0.2) {
      Fact fact;
      fact.kind = "shape";
      fact.name = "rates-disagree";
      fact.detail = fmt::format("{} s per step are {:.3g} steps/s, not {}", *seconds, 1 / *seconds, *rate);
      fact.line = line;
      fact.column = 1;
      unit.facts.push_back(std::move(fact));
    }
    ++line;
  }
  units.push_back(std::move(unit));
}

}  // namespace lockstep::lint
