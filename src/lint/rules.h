// The rules of lint as data: a table in the program (lint_rules.inc; docs/formats/lint-rules.md), read once. Each row
// says what it is about, when it holds, what is wrong, why, and what to do, and carries an example it fires on and one
// it does not. Immutable. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "lint/lint.h"

namespace lockstep::lint {

// One line of `when:`.
struct Condition {
  std::string verb;        // "value", "also", "without", "in", "hardware", "is", "lasting", ...
  std::string kind, name;  // of another fact, for also and without
  std::string comparison;  // "=", "!=", "~", "!~", ">", "<", ""
  std::string operand;
};

struct Example {
  std::string type;      // of file: "shell", "sbatch", ...
  std::string hardware;  // name of a machine the tests know; empty: none
  std::string variable;  // NAME=value of the job's environment; empty: none
  std::string text;
  int line = 0;
};

struct Rule {
  std::string id;
  std::string kind;                       // of the fact: "variable", "flag", ...
  std::vector<std::string> names;         // patterns with '*'
  std::vector<Condition> when;            // all must hold
  std::vector<std::string> unless_rules;  // silent where one of these has spoken about the same fact
  Severity severity = Severity::kNote;
  std::string what, why, fix, source;
  std::vector<Example> fires, silent;
};

const std::vector<Rule>& Rules();
Result<std::vector<Rule>> ParseRules(std::string_view text);

// '*' stands for any text, '?' for one character.
bool MatchesPattern(std::string_view text, std::string_view pattern);

}  // namespace lockstep::lint
