// Dockerfiles: ENV in both its forms, ARG, and the shell text of RUN, CMD and ENTRYPOINT.
#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "tune/readers.h"
#include "tune/shell_lexer.h"

namespace lockstep::tune {
namespace {

struct Instruction {
  std::string name;  // in capitals
  std::string text;  // what follows it; continuation lines joined by line ends
  int line = 0, column = 0;
};

std::vector<Instruction> Instructions(std::string_view text, int line) {
  std::vector<Instruction> found;
  bool continues = false;
  for (const std::string& raw : Split(text, '\n')) {
    std::string_view row = raw;
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    const std::string_view trimmed = Trim(row);
    const bool comment = !trimmed.empty() && trimmed[0] == '#';
    if (comment || (trimmed.empty() && continues)) {
      // Comments between continuation lines go; the line counts.
      if (continues) found.back().text += '\n';
      ++line;
      continue;
    }
    if (continues) {
      found.back().text += '\n';
      found.back().text += row;
    } else if (!trimmed.empty()) {
      const size_t start = row.find_first_not_of(" \t");
      size_t end = row.find_first_of(" \t", start);
      if (end == std::string_view::npos) end = row.size();
      Instruction one;
      one.name = row.substr(start, end - start);
      std::transform(one.name.begin(), one.name.end(), one.name.begin(),
                     [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
      const size_t body = std::min(row.find_first_not_of(" \t", end), row.size());
      one.text = row.substr(body);
      one.line = line;
      one.column = static_cast<int>(body) + 1;
      found.push_back(std::move(one));
    }
    continues = !found.empty() && !trimmed.empty() && trimmed.back() == '\\';
    ++line;
  }
  return found;
}

void Env(const Instruction& one, Unit& unit) {
  const ShellScript script = ReadShell(one.text, one.line, one.column);
  auto add = [&](const std::string& name, const std::string& value, bool known, int line, int column) {
    Fact fact;
    fact.kind = "variable";
    fact.name = name;
    fact.value = value;
    fact.known = known;
    fact.fallback = one.name == "ARG";
    fact.line = line;
    fact.column = column;
    unit.facts.push_back(std::move(fact));
  };
  for (const ShellCommand& command : script.commands) {
    for (const ShellAssignment& assignment : command.assignments) {
      add(assignment.name, assignment.value.value, assignment.value.known, assignment.line, assignment.column);
    }
    // ENV NAME value with blanks
    if (command.assignments.empty() && command.words.size() >= 2 && IsName(command.words[0].value) &&
        one.name == "ENV") {
      std::vector<std::string> values;
      bool known = true;
      for (size_t i = 1; i < command.words.size(); ++i) {
        values.push_back(command.words[i].value);
        known = known && command.words[i].known;
      }
      add(command.words[0].value, Join(values, " "), known, command.words[0].line, command.words[0].column);
    }
  }
}

}  // namespace

void ReadDockerfile(std::string_view text, int line, Units& units) {
  Unit unit;
  unit.dialect = "dockerfile";
  for (const Instruction& one : Instructions(text, line)) {
    if (one.name == "ENV" || one.name == "ARG") {
      Env(one, unit);
    } else if (one.name == "RUN" || one.name == "CMD" || one.name == "ENTRYPOINT") {
      Units inside;
      const Result<nlohmann::json> list = ParseJson(one.text, "");
      if (list.ok() && list->is_array()) {
        std::vector<ShellWord> words;
        for (const nlohmann::json& word : *list) {
          ShellWord plain;
          if (word.is_string()) plain.value = plain.text = word.get<std::string>();
          plain.line = one.line;
          plain.column = one.column;
          plain.known = plain.value.find('$') == std::string::npos;
          plain.quoted = true;
          words.push_back(std::move(plain));
        }
        if (!words.empty()) ReadWords(words, unit);
      } else {
        ReadScript(one.text, one.line, one.column, true, "dockerfile", inside);
        // A variable set in RUN is gone when the layer is written: it is for that command only.
        for (Unit& read : inside) {
          for (Fact& fact : read.facts) {
            if (fact.kind == "variable" && one.name == "RUN") fact.lasting = false;
            unit.facts.push_back(std::move(fact));
          }
        }
      }
    }
  }
  units.push_back(std::move(unit));
}

}  // namespace lockstep::tune
