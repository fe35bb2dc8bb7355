// How a script deals with failure: what set -e makes unreachable, handlers that report success, statuses lost in pipes.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "lint/readers.h"

namespace lockstep::lint {
namespace {

bool Mentions(const ShellCommand& command, std::string_view text) {
  auto has = [&](const ShellWord& word) { return word.text.find(text) != std::string::npos; };
  return std::any_of(command.words.begin(), command.words.end(), has) ||
         std::any_of(command.assignments.begin(), command.assignments.end(),
                     [&](const ShellAssignment& one) { return has(one.value); });
}

bool ReadsStatus(const ShellCommand& command) {
  return Mentions(command, "$?") || Mentions(command, "${?}") || Mentions(command, "PIPESTATUS");
}

bool IsTest(const ShellCommand& command) {
  if (command.words.empty()) return false;
  const std::string& program = command.words[0].value;
  return program == "[" || program == "[[" || program == "test" || program == "((";
}

class ScriptShapeFinder {
 public:
  ScriptShapeFinder(const ShellScript& script, const std::vector<CommandLine>& lines, Unit& unit)
      : script_(script), lines_(lines), unit_(unit) {}

  void Find() {
    for (const ShellComment& comment : script_.comments) {
      if (comment.line == 1 && comment.text.rfind("!", 0) == 0) {
        errexit_ = comment.text.find(" -e") != std::string::npos || comment.text.find(" -x -e") != std::string::npos;
      }
    }
    for (size_t i = 0; i < script_.commands.size(); ++i) {
      const ShellCommand& command = script_.commands[i];
      Options(command);
      Status(i);
      Exit(i);
      Trap(command);
      Ignored(i);
      FabricOff(command);
    }
  }

 private:
  void Add(const std::string& name, const ShellCommand& at, const std::string& detail) {
    Fact fact;
    fact.kind = "shape";
    fact.name = name;
    fact.detail = detail;
    fact.line = at.line;
    fact.column = at.column;
    fact.branches = at.branches;
    unit_.facts.push_back(std::move(fact));
  }

  void Options(const ShellCommand& command) {
    if (command.words.size() < 2 || command.words[0].value != "set") return;
    for (size_t i = 1; i < command.words.size(); ++i) {
      const std::string& word = command.words[i].value;
      if (word.size() < 2 || (word[0] != '-' && word[0] != '+')) continue;
      const bool on = word[0] == '-';
      if (word.find('e') != std::string::npos) errexit_ = on;
      if (word.find('o') != std::string::npos && i + 1 < command.words.size()) {
        const std::string& option = command.words[i + 1].value;
        if (option == "errexit") errexit_ = on;
        if (option == "pipefail") pipefail_ = on;
      }
    }
  }

  // The pipeline before command i in the same list: its last command, or -1.
  int Before(size_t i) const {
    const ShellCommand& command = script_.commands[i];
    if (i == 0) return -1;
    if (command.construct >= 0) {
      const ShellConstruct& construct = script_.constructs[command.construct];
      if (construct.first == static_cast<int>(i)) {
        return construct.kind == "if" && command.condition ? construct.previous : -1;
      }
    }
    const ShellCommand& before = script_.commands[i - 1];
    if (before.construct != command.construct || before.arm != command.arm || before.condition != command.condition) {
      return -1;
    }
    return static_cast<int>(i) - 1;
  }

  size_t First(size_t last) const {
    while (last > 0 && script_.commands[last - 1].pipeline == script_.commands[last].pipeline) --last;
    return last;
  }

  // Whether something is done because of the status: a test here, or of the variable it is kept in. `exit $?` is not.
  bool Decides(size_t i) const {
    const ShellCommand& command = script_.commands[i];
    if (IsTest(command)) return true;
    std::vector<std::string> names;
    for (const ShellAssignment& one : command.assignments) names.push_back(one.name);
    if (!command.words.empty() && (command.words[0].value == "local" || command.words[0].value == "export")) {
      for (const ShellWord& word : command.words) names.push_back(word.text.substr(0, word.text.find('=')));
    }
    for (size_t later = i + 1; later < script_.commands.size() && !names.empty() && later < i + 200; ++later) {
      const ShellCommand& other = script_.commands[later];
      if (!IsTest(other) && !other.condition) continue;
      for (const std::string& name : names) {
        const bool arithmetic = other.words.size() > 1 && other.words[0].value == "((";
        if (Mentions(other, "$" + name) || Mentions(other, "${" + name) || (arithmetic && Mentions(other, name)))
          return true;
      }
    }
    return false;
  }

  // $? looked at where it cannot be seen, or is another program's.
  void Status(size_t i) {
    const ShellCommand& command = script_.commands[i];
    if (!ReadsStatus(command) || !command.before.empty() || !Decides(i)) return;
    const int last = Before(i);
    if (last < 0) return;
    const ShellCommand& before = script_.commands[last];
    if (before.after != ";" || before.tested || IsTest(before) || before.words.empty()) return;
    static const std::set<std::string> kHarmless = {"echo", "printf", ":",    "true", "set",   "export", "local",
                                                    "date", "cd",     "trap", "pwd",  "sleep", "unset",  "shift"};
    if (kHarmless.count(before.words[0].value) != 0) return;
    const size_t first = First(last);
    const bool piped = first != static_cast<size_t>(last);
    const std::string who =
        Printable(script_.commands[first].words.empty() ? "" : script_.commands[first].words[0].text, 60);
    if (errexit_ && (!piped || pipefail_)) {
      Add("status-after-errexit", command, fmt::format("'{}' in line {}", who, script_.commands[first].line));
    } else if (piped && !pipefail_ && Mentions(command, "$?") && RunsJob(lines_[first])) {
      Add("status-of-pipe", command,
          fmt::format("'{}', not of '{}' in line {}", Printable(before.words[0].text, 60), who,
                      script_.commands[first].line));
    }
  }

  // Whether the arm of this construct is taken because the job failed.
  bool FailureArm(int construct, int arm) const {
    const ShellConstruct& one = script_.constructs[construct];
    if (one.kind == "function") {
      std::string name = one.name;
      std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
      return handlers_.count(one.name) != 0 || name.find("on_err") != std::string::npos ||
             name.find("handle_err") != std::string::npos || name.find("error_handler") != std::string::npos ||
             name.find("on_fail") != std::string::npos;
    }
    if (one.kind == "group") {
      return one.before == "||" && one.previous >= 0 && RunsJob(lines_[one.previous]);
    }
    if (one.kind != "if") return false;
    // The last arm without condition is taken when those before are not.
    const bool otherwise = arm < static_cast<int>(one.conditions.size()) && one.conditions[arm] < 0;
    const int looked = otherwise                                       ? one.conditions[0]
                       : arm < static_cast<int>(one.conditions.size()) ? one.conditions[arm]
                                                                       : -1;
    if (looked < 0 || looked >= static_cast<int>(script_.commands.size())) return false;
    const int sign = Polarity(script_.commands[looked], lines_[looked]);
    return otherwise ? sign > 0 : sign < 0;
  }

  // 1: true means that the job succeeded, -1: that it failed, 0: neither.
  int Polarity(const ShellCommand& condition, const CommandLine& line) const {
    if (!IsTest(condition)) return RunsJob(line) ? (condition.negated ? -1 : 1) : 0;
    std::string text;
    for (const ShellWord& word : condition.words) text += " " + word.text;
    if (!StatusText(text) || text.find("&&") != std::string::npos || text.find(" -a ") != std::string::npos) return 0;
    auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
    int sign = 0;
    if (has("-eq 0") || has("== 0") || has("= 0") || has("== \"0\"") || has("= \"0\"") || has("==0")) sign = 1;
    if (has("-ne 0") || has("!= 0") || has("-gt 0") || has("> 0") || has("!=0") || has("!= \"0\"")) sign = -1;
    return condition.negated ? -sign : sign;
  }

  // Whether a test is about the status of a command.
  static bool StatusText(const std::string& text) {
    if (text.find("$?") != std::string::npos || text.find("PIPESTATUS") != std::string::npos) return true;
    std::string lower = text;
    std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    for (const char* name : {"exit_code", "exitcode", "exit_status", "retcode", "ret_code", "return_code", "status",
                             "$rc", "{rc", "$ret", "{ret", "train_rc", "$err"}) {
      const size_t at = lower.find(name);
      if (at != std::string::npos && lower.find('$') != std::string::npos) return true;
    }
    return false;
  }

  // exit 0 where the job has failed.
  void Exit(size_t i) {
    const ShellCommand& command = script_.commands[i];
    if (command.words.size() != 2 || command.words[0].value != "exit" || command.words[1].value != "0") return;
    if (command.before == "||" && i > 0 && RunsJob(lines_[First(i - 1)]) && !IsTest(script_.commands[i - 1])) {
      Add("handler-exits-zero", command, "");
      return;
    }
    for (int construct = command.construct, arm = command.arm; construct >= 0;) {
      if (FailureArm(construct, arm)) {
        Add("handler-exits-zero", command, "");
        return;
      }
      arm = script_.constructs[construct].arm_of_parent;
      construct = script_.constructs[construct].parent;
    }
  }

  void Trap(const ShellCommand& command) {
    if (command.words.size() < 3 || command.words[0].value != "trap") return;
    const bool on_error = std::any_of(command.words.begin() + 2, command.words.end(),
                                      [](const ShellWord& word) { return word.value == "ERR"; });
    if (!on_error) return;
    const std::string& action = command.words[1].value;
    handlers_.insert(action.substr(0, action.find(' ')));
    if (action.find("exit 0") != std::string::npos) Add("handler-exits-zero", command, "");
  }

  // if [ -n "$NCCL_IB_HCA" ]; ...; else export NCCL_IB_DISABLE=1
  void FabricOff(const ShellCommand& command) {
    if (command.words.size() < 2 || command.words[0].value != "export") return;
    const bool off = std::any_of(command.words.begin(), command.words.end(),
                                 [](const ShellWord& word) { return word.value == "NCCL_IB_DISABLE=1"; });
    for (int construct = command.construct; off && construct >= 0; construct = script_.constructs[construct].parent) {
      for (int looked : script_.constructs[construct].conditions) {
        if (looked < 0 || looked >= static_cast<int>(script_.commands.size())) continue;
        if (!Mentions(script_.commands[looked], "NCCL_IB_HCA")) continue;
        Add("fabric-off-unless-named", command, "");
        return;
      }
    }
  }

  // torchrun ... || true
  void Ignored(size_t i) {
    const ShellCommand& command = script_.commands[i];
    if (command.before != "||" || command.words.size() != 1 || i == 0) return;
    if (command.words[0].value != "true" && command.words[0].value != ":") return;
    const CommandLine& line = lines_[First(i - 1)];
    static const std::set<std::string> kLaunchers = {"torchrun", "accelerate", "deepspeed", "mpirun", "srun"};
    const bool launches = std::any_of(line.chain.begin(), line.chain.end(),
                                      [](const Invocation& one) { return kLaunchers.count(one.program) != 0; });
    // srun mkdir, srun enroot remove: work around the job, not the job.
    static const std::set<std::string> kJobs = {"torchrun", "accelerate", "deepspeed", "python",
                                                "script",   "bash",       "sh",        "docker"};
    const bool job = std::any_of(line.chain.begin(), line.chain.end(),
                                 [](const Invocation& one) { return kJobs.count(one.program) != 0; });
    if (launches && job) Add("failure-ignored", command, line.chain[0].program);
  }

  const ShellScript& script_;
  const std::vector<CommandLine>& lines_;
  Unit& unit_;
  bool errexit_ = false, pipefail_ = false;
  std::set<std::string> handlers_;
};

}  // namespace

void ScriptShapes(const ShellScript& script, const std::vector<CommandLine>& lines, Unit& unit) {
  ScriptShapeFinder(script, lines, unit).Find();
}

}  // namespace lockstep::lint
