// Dockerfiles: ENV in both its forms, ARG, and the shell text of RUN, CMD and ENTRYPOINT.
#include <algorithm>
#include <cctype>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "lint/readers.h"
#include "lint/shell_lexer.h"

namespace lockstep::lint {
namespace {

struct Instruction {
  std::string name;  // in capitals
  std::string text;  // what follows it; continuation lines joined by line ends
  int line = 0, column = 0;
};

// The words that end the documents of RUN <<EOF and COPY <<EOF <<"OTHER".
std::vector<std::string> Delimiters(const Instruction& one) {
  std::vector<std::string> words;
  if (one.name != "RUN" && one.name != "COPY" && one.name != "ADD") return words;
  for (size_t at = one.text.find("<<"); at != std::string::npos; at = one.text.find("<<", at + 2)) {
    size_t start = at + 2;
    if (start < one.text.size() && one.text[start] == '-') ++start;
    while (start < one.text.size() && (one.text[start] == '"' || one.text[start] == '\'')) ++start;
    size_t end = start;
    while (end < one.text.size() && (std::isalnum(static_cast<unsigned char>(one.text[end])) || one.text[end] == '_')) {
      ++end;
    }
    if (end > start && one.text.substr(at, 3) != "<<<") words.push_back(one.text.substr(start, end - start));
  }
  return words;
}

std::vector<Instruction> Instructions(std::string_view text, int line) {
  std::vector<Instruction> found;
  std::vector<std::string> documents;  // that are still to be read
  bool continues = false;
  char escape = '\\';
  for (const std::string& raw : Split(text, '\n')) {
    std::string_view row = raw;
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    const std::string_view trimmed = Trim(row);
    if (!documents.empty()) {
      found.back().text += '\n';
      found.back().text += row;
      if (trimmed == documents.front()) documents.erase(documents.begin());
      ++line;
      continue;
    }
    if (found.empty() && trimmed == "# escape=`") escape = '`';
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
      size_t start = row.find_first_not_of(" \t");
      if (row.substr(start, 8) == "ONBUILD ") start = std::min(row.find_first_not_of(" \t", start + 8), row.size() - 1);
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
    continues = !found.empty() && !trimmed.empty() && trimmed.back() == escape;
    if (continues) {
      std::string& joined = found.back().text;
      const size_t at = joined.find_last_of(escape);
      if (at != std::string::npos) {
        joined.erase(at);  // blanks behind it do no harm here
      } else if (!found.back().name.empty()) {
        found.back().name.pop_back();  // right behind the name: "RUN\"
      }
      joined += '\\';
    } else if (!found.empty()) {
      documents = Delimiters(found.back());
      if (trimmed.empty()) documents.clear();
    }
    ++line;
  }
  return found;
}

using Values = std::map<std::string, std::string>;

// $NAME, ${NAME} and ${NAME:-value} replaced by what ARG and ENV said before; false: something is left open.
bool Fill(std::string& value, const Values& values) {
  std::string filled;
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i] != '$') {
      filled += value[i];
      continue;
    }
    const bool braced = i + 1 < value.size() && value[i + 1] == '{';
    const size_t start = i + (braced ? 2 : 1);
    size_t end = start;
    while (end < value.size() && (std::isalnum(static_cast<unsigned char>(value[end])) || value[end] == '_')) ++end;
    auto at = values.find(value.substr(start, end - start));
    if (at == values.end() || (braced && (end >= value.size() || value[end] != '}'))) return false;
    filled += at->second;
    i = braced ? end : end - 1;
  }
  value = filled;
  return filled.size() < 16 * 1024 && filled.find('`') == std::string::npos;
}

// `outer`: ARG before the first FROM, which a stage sees once it names it.
void Env(const Instruction& one, const Values& outer, Values& values, Unit& unit) {
  const ShellScript script = ReadShell(one.text, one.line, one.column);
  auto add = [&](const std::string& name, std::string value, bool known, int line, int column) {
    Fact fact;
    fact.kind = "variable";
    fact.name = name;
    fact.known = known || Fill(value, values);
    fact.value = value;
    fact.fallback = one.name == "ARG";
    fact.line = line;
    fact.column = column;
    values.erase(name);
    if (fact.known) values[name] = value;
    unit.facts.push_back(std::move(fact));
  };
  for (const ShellCommand& command : script.commands) {
    for (const ShellAssignment& assignment : command.assignments) {
      add(assignment.name, assignment.value.value, assignment.value.known, assignment.line, assignment.column);
    }
    if (one.name == "ARG") {
      for (const ShellWord& word : command.words) {
        if (auto at = outer.find(word.value); at != outer.end()) values[word.value] = at->second;
      }
      continue;
    }
    // ENV NAME value with blanks
    if (command.assignments.empty() && command.words.size() >= 2 && IsName(command.words[0].value)) {
      std::vector<std::string> values_of;
      bool known = true;
      for (size_t i = 1; i < command.words.size(); ++i) {
        values_of.push_back(command.words[i].value);
        known = known && command.words[i].known;
      }
      add(command.words[0].value, Join(values_of, " "), known, command.words[0].line, command.words[0].column);
    }
  }
}

// COPY <<EOF /etc/nccl.conf: the file it writes.
void Written(const Instruction& one, Units& units) {
  const ShellScript script = ReadShell(one.text, one.line, one.column);
  if (script.commands.empty() || script.commands[0].words.empty()) return;
  const ShellCommand& command = script.commands[0];
  for (const HereDocument& document : command.documents) {
    ReadEmbedded(document.text, document.line, 1, command.words.back().value, units);
  }
}

}  // namespace

void ReadDockerfile(std::string_view text, int line, Units& units) {
  Unit unit;
  unit.dialect = "dockerfile";
  Values outer, values;
  bool stage = false;
  for (const Instruction& one : Instructions(text, line)) {
    if (one.name == "FROM") {
      if (!stage) outer = values;
      stage = true;
      values.clear();
    } else if (one.name == "ENV" || one.name == "ARG") {
      Env(one, outer, values, unit);
    } else if (one.name == "COPY" || one.name == "ADD") {
      Written(one, units);
    } else if (one.name == "RUN" && one.text.rfind("<<", 0) == 0) {
      const ShellScript script = ReadShell("sh " + one.text, one.line, one.column);
      for (const ShellCommand& command : script.commands) {
        for (const HereDocument& document : command.documents) {
          ReadScript(document.text, document.line, 1, true, "dockerfile", units);
        }
      }
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

}  // namespace lockstep::lint
