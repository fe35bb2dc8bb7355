// A shell script as a list of simple commands with their words, places and surroundings: which arm of which if, case or
// loop, what was looked at when it failed, what it was piped into. Bash is understood as people write job scripts in
// it; what is not understood is passed over, never an error, and nothing is executed. Pure functions. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lint/fact.h"

namespace lockstep::lint {

// From `at` on, the characters of a word's value stand in a row beginning at this place.
struct ShellPlace {
  size_t at = 0;
  int line = 0, column = 0;
};

struct ShellWord {
  std::string text;       // as written
  std::string value;      // without quotes, expansions replaced where the script says their value
  bool known = true;      // false: an expansion is left in `value`
  bool fallback = false;  // came from ${NAME:-value}
  bool quoted = false;
  int line = 0, column = 0;
  std::vector<ShellPlace> places;  // where `value` does not simply follow from line and column

  // Where the character of `value` at this offset is written.
  ShellPlace PlaceOf(size_t offset) const;
  // The part of the value from `offset` on, with its places.
  ShellWord From(size_t offset, size_t length = std::string::npos) const;
};

struct ShellAssignment {
  std::string name;
  ShellWord value;
  std::vector<ShellWord> elements;  // of NAME=(a b c)
  bool array = false;
  int line = 0, column = 0;
};

struct HereDocument {
  std::string text;
  int line = 0;  // of its first line
};

struct ShellCommand {
  std::vector<ShellAssignment> assignments;
  std::vector<ShellWord> words;
  std::string before, after;  // operators around it: "", ";", "&", "&&", "||", "|"
  std::string output;         // file of > or >>
  std::vector<HereDocument> documents;
  int construct = -1;      // innermost, index into ShellScript::constructs
  int arm = 0;             // of that construct
  int pipeline = 0;        // commands of one pipeline share it
  bool condition = false;  // stands where if or while looks
  bool tested = false;     // its failure is looked at: by if, while, until, !, && or ||
  bool negated = false;
  std::vector<Branch> branches;
  int line = 0, column = 0;
};

struct ShellConstruct {
  std::string kind;    // "if", "case", "loop", "group", "function"
  std::string name;    // of a function
  std::string before;  // operator before it
  int parent = -1, arm_of_parent = 0;
  int first = 0;                // index of the first command inside
  int previous = -1;            // index of the command before the construct, in the same list
  std::vector<int> conditions;  // of each arm: index of the first command of its condition, -1: none (else)
};

struct ShellComment {
  std::string text;        // without '#'; neighbouring lines are one comment
  bool directive = false;  // #SBATCH, without a blank between
  int line = 0, column = 0;
};

struct ShellScript {
  std::vector<ShellCommand> commands;
  std::vector<ShellConstruct> constructs;
  std::vector<ShellComment> comments;
  std::vector<ShellPlace> broken;  // backslashes with blanks behind them: the line does not go on
};

// `line` and `column` are those of the first character, for text inside another file; `left` is the column at which its
// other lines begin (a block of YAML is indented).
ShellScript ReadShell(std::string_view text, int line = 1, int column = 1, int left = 1,
                      const std::vector<ShellPlace>& places = {});

}  // namespace lockstep::lint
