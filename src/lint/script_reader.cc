#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "lint/lint.h"
#include "lint/readers.h"
#include "lint/shell_lexer.h"
#include "lint/variables.h"

namespace lockstep::lint {
namespace {

constexpr int kDeepestScript = 4;  // of text inside text

bool ToolVariable(const std::string& name) {
  return Variables::Complete(name) || Variables::Table().Find(name) != nullptr;
}

class ScriptReader {
 public:
  ScriptReader(bool fragment, Unit& unit, Units& others) : fragment_(fragment), unit_(unit), others_(others) {}

  void Read(std::string_view text, int line, int column, int depth, int left = 1,
            const std::vector<ShellPlace>& places = {}) {
    ShellScript script = ReadShell(text, line, column, left, places);
    std::vector<CommandLine> lines;
    lines.reserve(script.commands.size());
    for (const ShellCommand& command : script.commands) lines.push_back(TakeApart(command));
    for (size_t i = 0; i < lines.size(); ++i) {
      for (int at = script.commands[i].construct; at >= 0; at = script.constructs[at].parent) {
        if (script.constructs[at].kind == "function") in_functions_.insert(script.commands[i].line);
      }
      Command(script.commands[i], lines[i], depth);
      const bool piped = script.commands[i].after == "|" && i + 1 < lines.size() && !lines[i + 1].chain.empty();
      Documents(script.commands[i], piped ? lines[i + 1] : lines[i], depth);
    }
    const int first = script.commands.empty() ? 0 : script.commands[0].line;
    for (const ShellComment& comment : script.comments) Comment(comment, first);
    for (const ShellPlace& place : script.broken) {
      Fact shape;
      shape.kind = "shape";
      shape.name = "blank-after-backslash";
      shape.line = place.line;
      shape.column = place.column;
      unit_.facts.push_back(std::move(shape));
    }
    ScriptShapes(script, lines, unit_);
    if (depth == 0) {
      top_ = std::move(script);
      top_lines_ = std::move(lines);
    }
  }

  // A command given as a list of words.
  void Read(const std::vector<ShellWord>& words) {
    ShellCommand command;
    command.words = words;
    const CommandLine line = TakeApart(command);
    Command(command, line, 0);
  }

  // Assignments whose fate is known only at the end of the script.
  void Settle() {
    for (Pending& pending : pending_) {
      const std::string& name = pending.fact.name;
      const bool exported = pending.exported || exported_.count(name) != 0;
      if (!exported && !ToolVariable(name)) continue;
      const bool inner = !exported && !fragment_ && commands_;
      const bool known = Variables::Table().Find(name) != nullptr || Variables::Table().Meant(name).has_value();
      if (inner && !known) continue;  // a variable of the script
      pending.fact.exported = !inner;
      if (!exported && !fragment_ && commands_ && used_.count(name) == 0 && Ours(name)) {
        Fact shape = pending.fact;
        shape.kind = "shape";
        shape.detail = name;
        shape.name = "not-exported";
        unit_.facts.push_back(std::move(shape));
      }
      pending.fact.lasting = exported || !commands_ || fragment_;
      unit_.facts.push_back(std::move(pending.fact));
    }
    // A list of flags that is used here was read with the command it is used in.
    for (const auto& [array, command] : arrays_) {
      if (used_.count(array.name) == 0) Array(array, command);
    }
    for (Fact& fact : unit_.facts) fact.used = fact.kind == "variable" && used_.count(fact.name) != 0;
    End();
    unit_.used.insert(used_.begin(), used_.end());
    if (unit_.dialect == "sbatch") SlurmShapes(top_, top_lines_, unit_);
  }

 private:
  struct Pending {
    Fact fact;
    bool exported = false;  // by set -a
  };
  struct Unset {
    std::string name;
    int line;
    std::vector<Branch> branches;
  };

  // Variables that a library reads from the environment and a script has no use for itself.
  static bool Ours(const std::string& name) {
    const Variable* row = Variables::Table().Find(name);
    if (row == nullptr || row->name.back() == '*') return false;
    return row->status == "current" &&
           (row->owner == "nccl" || row->owner == "gloo" || (row->owner == "torch" && name.rfind("TORCH_", 0) == 0));
  }

  static Fact Make(const std::string& kind, const std::string& name, const ShellWord& value, int line, int column,
                   const ShellCommand& command) {
    Fact fact;
    fact.kind = kind;
    fact.name = name;
    fact.value = value.value;
    fact.known = value.known;
    fact.fallback = value.fallback;
    fact.line = line;
    fact.column = column;
    fact.branches = command.branches;
    return fact;
  }

  void Command(const ShellCommand& command, const CommandLine& line, int depth) {
    NoteUses(command);
    if (command.words.empty()) {
      for (const ShellAssignment& assignment : command.assignments) {
        if (assignment.array) {
          arrays_.emplace_back(assignment, command);
        } else {
          Kept(assignment, command, depth);
          pending_.push_back(
              {Make("variable", assignment.name, assignment.value, assignment.line, assignment.column, command),
               all_exported_});
        }
      }
      return;
    }
    const std::string& program = command.words[0].value;
    if (program == "export" || program == "declare" || program == "typeset" || program == "readonly" ||
        program == "local" || program == "setenv") {
      Declaration(command, program);
      return;
    }
    if (program == "set") {
      for (const ShellWord& word : command.words) {
        const bool letters = word.value.size() > 1 && (word.value[0] == '-' || word.value[0] == '+');
        if (letters && word.value.find('a') != std::string::npos) all_exported_ = word.value[0] == '-';
        if (word.value == "allexport") all_exported_ = (&word - 1)->value != "+o";
      }
      Fish(command);
    }
    if (program == "unset") {
      for (const ShellWord& word : command.words) unset_.push_back({word.value, command.line, command.branches});
    }
    if (program == ":") Defaults(command);
    if (SpacedAssignment(command)) return;
    if (program != "set" && program != ":" && program != "unset" && program != "echo" && program != "cd" &&
        program != "module") {
      commands_ = true;
      runs_.push_back(command.line);
    }
    const size_t before = unit_.facts.size();
    for (const ShellAssignment& assignment : line.environment) {
      Fact fact = Make("variable", assignment.name, assignment.value, assignment.line, assignment.column, command);
      fact.lasting = false;
      unit_.facts.push_back(std::move(fact));
    }
    const bool launched = std::any_of(line.chain.begin(), line.chain.end(), [](const Invocation& one) {
      return one.program == "torchrun" || one.program == "accelerate" || one.program == "deepspeed" ||
             one.program == "srun" || one.program == "mpirun" || one.program == "bare";
    });
    for (const Invocation& one : line.chain) Program(one, command, launched);
    ++numbers_;
    for (size_t i = before; i < unit_.facts.size(); ++i) unit_.facts[i].command = numbers_;
    if (depth < kDeepestScript) {
      for (const ShellWord& text : line.scripts) Script(text, depth + 1);
      if ((program == "echo" || program == "printf") && !command.output.empty()) Echo(command, depth);
    }
  }

  // RUN="mpirun -x A=1": what it passes on, also where the script does not show that it is used.
  void Kept(const ShellAssignment& assignment, const ShellCommand& command, int depth) {
    const std::string& text = assignment.value.value;
    const size_t open = assignment.value.text.find_first_not_of('"');
    const std::string_view run = open == std::string::npos ? "" : std::string_view(assignment.value.text).substr(open);
    if (run.substr(0, 2) == "$(" && run.substr(0, 3) != "$((" && depth < kDeepestScript) {  // LOG=$(mpirun ...)
      const std::string_view inside = run.substr(2, run.rfind(')') == run.npos ? run.npos : run.rfind(')') - 2);
      Read(inside, assignment.value.line, assignment.value.column + static_cast<int>(open) + 2, depth + 1);
      return;
    }
    if (text.find(' ') == std::string::npos || text.find('=') == std::string::npos) return;
    ShellCommand pretended;
    pretended.words = ShellValues::Words(assignment.value);
    pretended.branches = command.branches;
    if (pretended.words.empty()) return;
    for (const ShellAssignment& one : TakeApart(pretended).environment) {
      if (!Variables::Complete(one.name)) continue;
      Fact fact = Make("variable", one.name, one.value, one.line, one.column, pretended);
      fact.lasting = false;
      unit_.facts.push_back(std::move(fact));
    }
  }

  // bash -c 'text', and bash -c "$TEXT" where the script says what it is.
  void Script(const ShellWord& word, int depth) {
    const size_t first = word.text.find_first_not_of("\"");
    const bool bare = first == 0 && word.text[0] != '\'';  // --wrap=text, whose quotes are gone
    if ((word.known && first != std::string::npos && word.text[first] == '$') || bare) {
      const ShellPlace place = word.PlaceOf(0);
      Read(word.value, place.line, place.column, depth, 1, word.places);
    } else {
      Read(Inside(word), word.line, word.column + 1, depth);
    }
  }

  // The text between the quotes of a word: places keep their meaning.
  static std::string Inside(const ShellWord& word) {
    if (word.text.size() < 2 || (word.text[0] != '\'' && word.text[0] != '"')) return word.value;
    std::string inside = word.text.substr(1, word.text.size() - 2);
    if (word.text[0] == '\'') return inside;
    std::string plain;
    for (size_t i = 0; i < inside.size(); ++i) {
      const bool escapes = inside[i] == '\\' && i + 1 < inside.size() &&
                           std::string_view("$`\"\\").find(inside[i + 1]) != std::string_view::npos;
      plain += escapes ? inside[++i] : inside[i];
    }
    return plain;
  }

  // echo "export A=1" >> ~/.bashrc; printf 'A=1\nB=2\n' > nccl.conf
  void Echo(const ShellCommand& command, int depth) {
    for (size_t i = 1; i < command.words.size(); ++i) {
      const std::string text = Inside(command.words[i]);
      const ShellPlace place{0, command.words[i].line, command.words[i].column + (command.words[i].quoted ? 1 : 0)};
      for (size_t start = 0; start < text.size();) {
        const size_t end = std::min(text.find("\\n", start), text.size());
        EchoedLine(command, text.substr(start, end - start), place.line, place.column + static_cast<int>(start), depth);
        start = end + 2;
      }
    }
  }

  void EchoedLine(const ShellCommand& command, const std::string& text, int line, int column, int depth) {
    if (text.find('=') == std::string::npos) return;
    if (command.output.find("nccl.conf") != std::string::npos && text.rfind("NCCL_", 0) == 0) {
      const size_t before = others_.size();
      ReadConf(text, line, others_);
      for (size_t i = before; i < others_.size(); ++i) {
        for (Fact& fact : others_[i].facts) fact.column += column - 1;
      }
    } else if (text.rfind("export ", 0) == 0 || IsName(text.substr(0, text.find('=')))) {
      Read(text, line, column, depth + 1);
    }
  }

  // set -gx NAME value, as fish writes it.
  void Fish(const ShellCommand& command) {
    if (command.words.size() < 4 || command.words[1].value.find('x') == std::string::npos) return;
    const ShellWord& name = command.words[2];
    if (!ToolVariable(name.value)) return;
    unit_.facts.push_back(Make("variable", name.value, command.words[3], name.line, name.column, command));
  }

  // : "${NAME:=value}"
  void Defaults(const ShellCommand& command) {
    for (size_t i = 1; i < command.words.size(); ++i) {
      const ShellWord& word = command.words[i];
      const size_t open = word.text.find("${");
      const size_t equals = word.text.find('=');
      if (open > 1 || equals == std::string::npos) continue;
      size_t end = equals > 0 && word.text[equals - 1] == ':' ? equals - 1 : equals;
      const std::string name = word.text.substr(open + 2, end - open - 2);
      if (!IsName(name)) continue;
      Fact fact = Make("variable", name, word, word.line, word.column + static_cast<int>(open) + 2, command);
      fact.fallback = true;
      pending_.push_back({std::move(fact), all_exported_});
    }
  }

  // NCCL_DEBUG =INFO and NCCL_DEBUG= INFO: to the shell, programs of these names.
  bool SpacedAssignment(const ShellCommand& command) {
    const ShellWord& first = command.words[0];
    const bool before = command.assignments.empty() && command.words.size() > 1 && ToolVariable(first.value) &&
                        !command.words[1].quoted && command.words[1].value.rfind("=", 0) == 0;
    const bool behind = command.assignments.size() == 1 && command.assignments[0].value.text.empty() &&
                        command.words.size() == 1 && Variables::Complete(command.assignments[0].name) &&
                        first.value.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_,") == std::string::npos;
    if (!before && !behind) return false;
    Fact shape = Make("shape", "space-after-equals", first, command.line, command.column, command);
    shape.detail = before ? first.value : command.assignments[0].name;
    unit_.facts.push_back(std::move(shape));
    return true;
  }

  // Values that were unset, or set anew, before the script was over.
  void End() {
    std::map<std::string, std::vector<Fact*>> facts;
    for (Fact& fact : unit_.facts) {
      if (fact.kind == "variable" && fact.lasting) facts[fact.name].push_back(&fact);
    }
    std::set<const Fact*> gone;
    auto end = [&](Fact& fact, int line, const std::vector<Branch>& branches) {
      const bool reached = branches.empty() || branches == fact.branches;
      if (fact.line >= line || !reached || in_functions_.count(line) != 0) return;
      if (fact.ends == 0 || line < fact.ends) fact.ends = line;
    };
    for (auto& [name, same] : facts) {
      for (size_t i = 0; i + 1 < same.size() && i < 200; ++i) end(*same[i], same[i + 1]->line, same[i + 1]->branches);
    }
    for (const Unset& unset : unset_) {
      for (Fact* fact : facts[unset.name]) {
        end(*fact, unset.line, unset.branches);
        const bool ran =
            std::any_of(runs_.begin(), runs_.end(), [&](int line) { return line > fact->line && line < unset.line; });
        if (fact->ends == unset.line && !ran) gone.insert(fact);
      }
    }
    std::vector<Fact> kept;
    for (Fact& fact : unit_.facts) {
      if (gone.count(&fact) == 0) kept.push_back(std::move(fact));
    }
    unit_.facts = std::move(kept);
  }

  void Declaration(const ShellCommand& command, const std::string& program) {
    bool exports = program == "export" || program == "setenv";
    for (size_t i = 1; i < command.words.size(); ++i) {
      const ShellWord& word = command.words[i];
      if (word.value.size() > 1 && word.value[0] == '-') {
        if (word.value.find('x') != std::string::npos) exports = true;
        continue;
      }
      if (program == "setenv") {
        if (i + 1 < command.words.size() && IsName(word.value)) {
          unit_.facts.push_back(Make("variable", word.value, command.words[i + 1], word.line, word.column, command));
        }
        return;
      }
      const size_t equals = word.value.find('=');
      if (equals == 0 && i > 1 && ToolVariable(command.words[i - 1].value) && !word.quoted) {
        Fact shape =
            Make("shape", "space-after-equals", word, command.words[i - 1].line, command.words[i - 1].column, command);
        shape.detail = command.words[i - 1].value;
        unit_.facts.push_back(std::move(shape));
        return;
      }
      if (equals == std::string::npos) {
        // export NCCL_DEBUG INFO: two names, where a value was meant.
        if (exports && IsName(word.value)) exported_.insert(word.value);
        if (exports && i > 1 && ToolVariable(command.words[i - 1].value) && !ToolVariable(word.value)) {
          Fact shape = Make("shape", "export-without-equals", word, word.line, word.column, command);
          shape.detail = command.words[i - 1].value;
          unit_.facts.push_back(std::move(shape));
        }
        continue;
      }
      const std::string name = word.value.substr(0, equals);
      if (!IsName(name) && !Variables::Table().Meant(name)) continue;
      if (equals + 1 == word.value.size() && i + 1 < command.words.size() && Variables::Complete(name) &&
          word.text.back() == '=') {
        Fact shape = Make("shape", "space-after-equals", word, word.line, word.column, command);
        shape.detail = name;
        unit_.facts.push_back(std::move(shape));
      }
      ShellWord value = word.From(equals + 1);
      value.known = word.known;
      Fact fact = Make("variable", name, value, word.line, word.column, command);
      if (exports) {
        exported_.insert(name);
        unit_.facts.push_back(std::move(fact));
      } else {
        pending_.push_back({std::move(fact), all_exported_});
      }
    }
  }

  void Program(const Invocation& one, const ShellCommand& command, bool launched) {
    ShellWord all;
    std::vector<std::string> texts;
    for (const ShellWord& word : command.words) texts.push_back(word.text);
    all.value = Join(texts, " ").substr(0, 2000);
    Fact fact = Make("command", one.program, all, one.word.line, one.word.column, command);
    fact.detail = one.name;
    unit_.facts.push_back(std::move(fact));
    for (const Flag& flag : one.flags) FlagFact(one.program, flag, command, launched);
    if (!one.operands.empty()) {
      std::vector<std::string> operands;
      for (const ShellWord& word : one.operands) operands.push_back(word.value);
      ShellWord joined = one.operands[0];
      joined.value = Join(operands, " ").substr(0, 2000);
      unit_.facts.push_back(Make("operands", one.program, joined, joined.line, joined.column, command));
    }
  }

  void FlagFact(const std::string& program, const Flag& flag, const ShellCommand& command, bool launched = true) {
    ShellWord value = flag.value;
    if (!flag.has_value) value.value.clear();
    Fact fact = Make("flag", program + " " + flag.name, value, flag.word.line, flag.word.column, command);
    fact.detail = flag.word.value.substr(0, flag.word.value.find('='));
    fact.launched = launched;
    unit_.facts.push_back(std::move(fact));
  }

  // ARGS=( --nnodes 2 ): flags of the program the list's name speaks of.
  void Array(const ShellAssignment& array, const ShellCommand& command) {
    ShellCommand pretended;
    pretended.words = array.elements;
    pretended.branches = command.branches;
    if (pretended.words.empty() || pretended.words[0].value.rfind("-", 0) != 0) {
      const CommandLine line = TakeApart(pretended);
      for (const ShellAssignment& one : line.environment) {
        Fact fact = Make("variable", one.name, one.value, one.line, one.column, pretended);
        fact.lasting = false;
        unit_.facts.push_back(std::move(fact));
      }
      for (const Invocation& one : line.chain) Program(one, pretended, true);
      return;
    }
    std::string lower = array.name;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    if (lower.find("mpi") != std::string::npos || lower.find("srun") != std::string::npos) return;
    const bool launcher = lower.find("torchrun") != std::string::npos ||
                          lower.find("distributed") != std::string::npos || lower.find("launch") != std::string::npos;
    const CommandLine line = TakeApart(pretended);
    const bool starts = std::any_of(array.elements.begin(), array.elements.end(), [](const ShellWord& word) {
      return word.value.rfind("--nproc", 0) == 0 || word.value.rfind("--nnodes", 0) == 0 ||
             word.value.rfind("--rdzv", 0) == 0 || word.value.rfind("--master", 0) == 0;
    });
    for (const Invocation& one : line.chain) {
      for (const Flag& flag : one.flags) FlagFact(launcher && starts ? "torchrun" : "script", flag, pretended);
    }
  }

  void Documents(const ShellCommand& command, const CommandLine& line, int depth) {
    if (depth >= kDeepestScript) return;
    for (const HereDocument& document : command.documents) {
      const std::string program = line.chain.empty() ? "" : line.chain[0].program;  // that reads it
      const bool run = program == "bash" || program == "sh" || program == "ssh" || program == "sbatch";
      if (run) {
        Read(document.text, document.line, 1, depth + 1);
        continue;
      }
      if (command.output.empty() && program != "python" && program != "kubectl" && program != "tee") {
        continue;
      }
      if (others_.size() > 100) continue;  // a document in a document in ...
      std::string name = command.output;
      if (program == "kubectl") name = "job.yaml";
      if (program == "python") name = "program.py";
      if (program == "tee" && !line.chain.empty() && !line.chain[0].operands.empty()) {
        name = line.chain[0].operands[0].value;
      }
      const std::optional<FileType> type = Recognise(document.text, name);
      if (type == FileType::kEnvironment || type == FileType::kMarkdown) {
        Read(document.text, document.line, 1, depth + 1);
      } else {
        ReadEmbedded(document.text, document.line, 1, name, others_);
      }
    }
  }

  // `first`: the line of the first command, behind which SLURM looks for directives no more.
  void Comment(const ShellComment& comment, int first) {
    if (comment.directive) {
      if (first == 0 || comment.line < first || fragment_) return Directive(comment);
      Fact shape;
      shape.kind = "shape";
      shape.name = "slurm-directive-late";
      shape.detail = Printable(comment.text, 60);
      shape.line = comment.line;
      shape.column = comment.column;
      unit_.facts.push_back(std::move(shape));
      return;
    }
    Fact fact;
    fact.kind = "comment";
    fact.name = "comment";
    fact.value = comment.text;
    fact.line = comment.line;
    fact.column = comment.column;
    unit_.facts.push_back(std::move(fact));
  }

  void Directive(const ShellComment& comment) {
    static const std::map<std::string, std::string> kShort = {
        {"-N", "--nodes"}, {"-n", "--ntasks"},    {"-c", "--cpus-per-task"}, {"-t", "--time"}, {"-J", "--job-name"},
        {"-G", "--gpus"},  {"-p", "--partition"}, {"-o", "--output"},        {"-e", "--error"}};
    const ShellScript parsed = ReadShell(std::string_view(comment.text).substr(6), comment.line, comment.column + 7);
    for (const ShellCommand& command : parsed.commands) {
      for (const Invocation& one : TakeApart(command).chain) {
        for (Flag flag : one.flags) {
          if (auto full = kShort.find(flag.name); full != kShort.end()) flag.name = full->second;
          // -N2: the value glued to the letter.
          if (flag.name.size() > 2 && flag.name[0] == '-' && flag.name[1] != '-' && !flag.has_value) {
            if (auto full = kShort.find(flag.name.substr(0, 2)); full != kShort.end()) {
              flag.value = flag.word;
              flag.value.value = flag.word.value.substr(2);
              flag.has_value = true;
              flag.name = full->second;
            }
          }
          FlagFact("sbatch", flag, command);
        }
      }
    }
    // #SBATCH --export=ALL,A=1: as srun writes it.
    const std::string as_srun = "srun " + comment.text.substr(6);
    for (const ShellCommand& command : ReadShell(as_srun, comment.line, comment.column + 2).commands) {
      for (const ShellAssignment& one : TakeApart(command).environment) {
        if (one.value.known) {
          unit_.facts.push_back(Make("variable", one.name, one.value, one.line, one.column, command));
        }
      }
    }
  }

  // Names the script itself reads: $NAME, ${NAME...}. Neither NAME=${NAME:-1} nor an echo makes it the script's own.
  void NoteUses(const ShellCommand& command) {
    auto scan = [&](const std::string& text, const std::string& but) {
      for (size_t i = text.find('$'); i != std::string::npos; i = text.find('$', i + 1)) {
        size_t start = i + 1;
        if (start < text.size() && text[start] == '{') ++start;
        size_t end = start;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
          ++end;
        if (end > start && text.compare(start, end - start, but) != 0) used_.insert(text.substr(start, end - start));
      }
    };
    for (const ShellAssignment& assignment : command.assignments) {
      scan(assignment.value.text, assignment.name);
      for (const ShellWord& element : assignment.elements) scan(element.text, "");
    }
    if (command.words.empty()) return;
    const std::string& program = command.words[0].value;
    if (program == "echo" || program == "printf" || program == "[" || program == "[[" || program == "test") return;
    for (const ShellWord& word : command.words) scan(word.text, word.text.substr(0, word.text.find('=')));
  }

  bool fragment_;
  Unit& unit_;
  Units& others_;
  std::vector<Pending> pending_;
  std::vector<std::pair<ShellAssignment, ShellCommand>> arrays_;
  ShellScript top_;
  std::vector<CommandLine> top_lines_;
  std::set<std::string> exported_, used_;
  std::vector<Unset> unset_;
  std::set<int> in_functions_;  // lines of commands whose time is not known
  std::vector<int> runs_;       // lines of commands that run something
  int numbers_ = 0;             // of commands
  bool all_exported_ = false;
  bool commands_ = false;  // something is run, so that what is not exported is lost
};

}  // namespace

void ReadScript(std::string_view text, int line, int column, bool fragment, const std::string& dialect, Units& units,
                int left) {
  static thread_local int depth = 0;  // scripts that write scripts that write scripts
  if (depth >= kDeepestScript) return;
  ++depth;
  Unit unit;
  unit.dialect = dialect;
  Units others;
  ScriptReader reader(fragment, unit, others);
  reader.Read(text, line, column, 0, left);
  reader.Settle();
  --depth;
  units.push_back(std::move(unit));
  for (Unit& other : others) units.push_back(std::move(other));
}

void ReadWords(const std::vector<ShellWord>& words, Unit& unit) {
  Units others;
  ScriptReader reader(true, unit, others);
  reader.Read(words);
  reader.Settle();
}

}  // namespace lockstep::lint
