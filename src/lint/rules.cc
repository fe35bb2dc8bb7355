#include "lint/rules.h"

#include <fmt/format.h>

#include <optional>

#include "base/text.h"

namespace lockstep::lint {
namespace {

constexpr const char* kRuleTable =
#include "lint/lint_rules.inc"
    ;

// "value > 23", "also variable NCCL_X ~ ^1$", "in sbatch script", "hardware ib-active".
Result<Condition> ParseCondition(std::string_view text) {
  Condition condition;
  std::vector<std::string> words;
  size_t at = 0;
  auto word = [&]() {
    while (at < text.size() && text[at] == ' ') ++at;
    const size_t start = at;
    while (at < text.size() && text[at] != ' ') ++at;
    return std::string(text.substr(start, at - start));
  };
  auto comparison = [&]() {
    const size_t before = at;
    const std::string next = word();
    if (next == "=" || next == "!=" || next == "~" || next == "!~" || next == ">" || next == "<") {
      condition.comparison = next;
      condition.operand = std::string(Trim(text.substr(at)));
    } else {
      at = before;
    }
  };
  condition.verb = word();
  if (condition.verb == "value") {
    comparison();
    if (condition.comparison.empty()) return Status(Code::kUsage, fmt::format("'{}': no comparison", text));
  } else if (condition.verb == "also" || condition.verb == "without") {
    condition.kind = word();
    if (condition.kind == "flag") {
      condition.name = word() + " ";  // program and flag are one name
      condition.name += word();
    } else {
      condition.name = word();
    }
    comparison();
    if (condition.name.empty()) return Status(Code::kUsage, fmt::format("'{}': of what?", text));
  } else if (condition.verb == "in" || condition.verb == "not-in" || condition.verb == "hardware" ||
             condition.verb == "is" || condition.verb == "lasting" || condition.verb == "not-hardware") {
    condition.operand = std::string(Trim(text.substr(at)));
  } else {
    return Status(Code::kUsage, fmt::format("'{}': unknown condition", text));
  }
  return condition;
}

Status Take(const std::string& key, const std::string& value, int line, Rule& rule) {
  if (key == "on") {
    const size_t space = value.find(' ');
    rule.kind = value.substr(0, space);
    const std::string names = space == std::string::npos ? "" : value.substr(space + 1);
    // Names of flags hold a blank; alternatives stand between bars.
    for (const std::string& name : Split(names, '|')) {
      if (!Trim(name).empty()) rule.names.emplace_back(Trim(name));
    }
    if (rule.names.empty()) return Status(Code::kUsage, "on: of what?");
  } else if (key == "when") {
    for (const std::string& one : Split(value, '\n')) {
      if (Trim(one).empty()) continue;
      Result<Condition> condition = ParseCondition(Trim(one));
      if (!condition.ok()) return condition.status();
      rule.when.push_back(*condition);
    }
  } else if (key == "unless-rule") {
    rule.unless_rules = Split(value, ' ');
  } else if (key == "severity") {
    rule.severity = value == "error" ? Severity::kError : value == "warning" ? Severity::kWarning : Severity::kNote;
    if (value != "error" && value != "warning" && value != "note") {
      return Status(Code::kUsage, fmt::format("severity '{}'", value));
    }
  } else if (key == "what") {
    rule.what = value;
  } else if (key == "why") {
    rule.why = value;
  } else if (key == "fix") {
    rule.fix = value;
  } else if (key == "source") {
    rule.source = value;
  } else if (key == "fires" || key == "silent") {
    Example example;
    const size_t end = value.find('\n');
    for (const std::string& word : Split(value.substr(0, end), ' ')) {
      if (word.rfind("hardware=", 0) == 0) {
        example.hardware = word.substr(9);
      } else if (word.rfind("env=", 0) == 0) {
        example.variable = word.substr(4);
      } else if (!word.empty()) {
        example.type = word;
      }
    }
    example.text = end == std::string::npos ? "" : value.substr(end + 1) + "\n";
    example.line = line;
    (key == "fires" ? rule.fires : rule.silent).push_back(std::move(example));
  } else {
    return Status(Code::kUsage, fmt::format("unknown key '{}'", key));
  }
  return Status::Ok();
}

}  // namespace

const std::vector<Rule>& Rules() {
  static const std::vector<Rule>* rules = [] {
    Result<std::vector<Rule>> parsed = ParseRules(kRuleTable);
    return new std::vector<Rule>(parsed.ok() ? std::move(*parsed) : std::vector<Rule>());  // a test reads it too
  }();
  return *rules;
}

Result<std::vector<Rule>> ParseRules(std::string_view text) {
  std::vector<Rule> rules;
  std::string key, value;
  int number = 0, started = 0;
  Status bad;
  auto flush = [&]() {
    if (key.empty() || !bad.ok()) return;
    if (rules.empty()) {
      bad = Status(Code::kUsage, fmt::format("line {}: '{}' before the first rule", started, key));
    } else if (Status taken = Take(key, value, started, rules.back()); !taken.ok()) {
      bad = taken.Context(fmt::format("line {}: {}", started, rules.back().id));
    }
    key.clear();
    value.clear();
  };
  for (const std::string& line : Split(text, '\n')) {
    ++number;
    if (line.rfind("  ", 0) == 0 && !key.empty()) {  // continues the value above; examples keep their own indentation
      const bool example = key == "fires" || key == "silent" || key == "when";
      value += example ? "\n" + line.substr(2) : " " + std::string(Trim(line));
      continue;
    }
    if (line.empty() && !key.empty() && (key == "fires" || key == "silent")) {
      flush();
      continue;
    }
    flush();
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[' && line.back() == ']') {
      rules.emplace_back();
      rules.back().id = line.substr(1, line.size() - 2);
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string::npos) return Status(Code::kUsage, fmt::format("line {}: no ':'", number));
    key = line.substr(0, colon);
    value = std::string(Trim(std::string_view(line).substr(colon + 1)));
    started = number;
  }
  flush();
  if (!bad.ok()) return bad;
  return rules;
}

bool MatchesPattern(std::string_view text, std::string_view pattern) {
  size_t t = 0, p = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == text[t] || pattern[p] == '?') && pattern[p] != '*') {
      ++t;
      ++p;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace lockstep::lint
