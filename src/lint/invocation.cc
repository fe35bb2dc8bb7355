#include "lint/invocation.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "lint/shell_lexer.h"
#include "lint/variables.h"

namespace lockstep::lint {
namespace {

// How the words of a program's command line are to be read.
struct Grammar {
  std::string_view program;
  std::string_view switches;        // flags that take no value
  std::string_view pairs;           // flags that take two
  std::string_view variables;       // flags whose value is NAME=VALUE or NAME
  std::string_view variable_lists;  // flags whose value is A=1,B=2
  bool wraps;                       // the first operand is another program
};

constexpr Grammar kGrammars[] = {
    {"torchrun", " --standalone -m --module --no-python --run-path --use-env --virtual-local-rank -h --help ", "", "",
     "", false},
    {"accelerate",
     " --multi-gpu --cpu --tpu --ipex --use-deepspeed --use-fsdp --use-megatron-lm --use-xpu -m --module --no-python "
     "-q "
     "--quiet --debug --dynamo-use-fullgraph --dynamo-use-dynamic --use-cpu --same-network --tpu-use-cluster "
     "--tpu-use-sudo --enable-cpu-affinity ",
     "", "", "", false},
    {"deepspeed",
     " --no-local-rank --no-python --module --force-multi --no-ssh --save-pid --enable-each-rank-log "
     "--bind-cores-to-rank ",
     "", "", "", false},
    {"srun",
     " -l --label -u --unbuffered -v --verbose -Q --quiet --exclusive --overlap -K --kill-on-bad-exit --pty -I -E "
     "--preserve-env -s --oversubscribe -O --overcommit -Z --no-allocate --multi-prog --no-kill -k --contiguous "
     "--whole --container-remap-root --no-container-remap-root --container-mount-home --no-container-mount-home "
     "--container-writable ",
     "", "", " --export ", true},
    {"mpirun",
     " --allow-run-as-root -v -q --tag-output -tag-output --report-bindings --oversubscribe -oversubscribe "
     "--display-map "
     "--display-allocation --nooversubscribe --nolocal -bynode -byslot --bynode --byslot -genvall -envall "
     "--timestamp-output "
     "-timestamp-output --enable-recovery -ppn1 -l -prepend-rank ",
     " --mca -mca -gmca --gmca -genv -env ", " -x --x ", " -genvlist ", true},
    {"jsrun", " --smpiargs -S ", "", " -E --env ", "", true},
    {"docker", " -d --detach -i --interactive -t --tty -it -ti --rm --init --privileged -P --publish-all --read-only ",
     "", " -e --env ", "", true},
    {"apptainer",
     " --nv --rocm --nvccli -c --contain --containall -e --cleanenv --writable-tmpfs --no-home -w --writable "
     "--fakeroot -f --unsquash ",
     "", "", " --env ", true},
    {"torchx", "", "", "", " --env ", false},
    {"kubectl", " -f --follow -p --previous --all-containers -it -i -t --tail ", "", " --env ", "", false},
    {"sbatch", " --parsable --wait -W --exclusive --requeue --no-requeue --hold ", "", "", " --export ", false},
};

const Grammar* GrammarOf(std::string_view program) {
  for (const Grammar& grammar : kGrammars) {
    if (grammar.program == program) return &grammar;
  }
  return nullptr;
}

// Programs that only prepare the way for another: how many of their words are not the other's.
struct Wrapper {
  std::string_view program;
  std::string_view valued;  // flags with a separate value
  int operands;             // words of its own before the wrapped program
};

constexpr Wrapper kWrappers[] = {
    {"exec", "", 0},
    {"nohup", "", 0},
    {"setsid", "", 0},
    {"sudo", " -u -g -H ", 0},
    {"time", "", 0},
    {"command", "", 0},
    {"stdbuf", "", 0},
    {"unbuffer", "", 0},
    {"nice", " -n ", 0},
    {"ionice", " -c -n ", 0},
    {"chrt", "", 1},
    {"timeout", " -k -s --signal --kill-after ", 1},
    {"taskset", " -c ", 0},
    {"numactl", " -N -m -C -i -p ", 0},
    {"eval", "", 0},
    {"builtin", "", 0},
    {"/usr/bin/time", " -o -f ", 0},
};

std::string BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

bool InList(std::string_view list, std::string_view word) {
  return list.find(" " + std::string(word) + " ") != std::string_view::npos;
}

std::string Dashes(std::string_view flag) {
  std::string name(flag);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool LooksLikeFlag(const ShellWord& word) {
  const std::string& text = word.value;
  return text.size() > 1 && text[0] == '-' && (text[1] < '0' || text[1] > '9') && text[1] != '.';
}

bool IsPython(const std::string& program) {
  return program.rfind("python", 0) == 0 && program.find_first_not_of("0123456789.", 6) == std::string::npos;
}

std::string Canonical(const std::string& written) {
  std::string base = BaseName(written);
  if (IsPython(base)) return "python";
  if (base == "torchrun-script" || base == "torchrun") return "torchrun";
  if (base == "mpiexec" || base == "orterun" || base == "prterun" || base == "mpirun" || base == "mpiexec.hydra") {
    return "mpirun";
  }
  if (base == "podman" || base == "nerdctl" || base == "nvidia-docker") return "docker";
  if (base == "singularity") return "apptainer";
  if (written == "$PYTHON" || written == "${PYTHON}" || written == "$PYTHON_BIN") return "python";
  return base;
}

class Taker {
 public:
  explicit Taker(const ShellCommand& command) : words_(command.words) { line_.environment = command.assignments; }

  CommandLine Take() {
    if (words_.empty()) return std::move(line_);
    if (LooksLikeFlag(words_[0])) {
      Program("bare", words_[0]);
      Flags(nullptr);
      while (at_ < words_.size()) {  // documents put comments and flags side by side
        Operand();
        Flags(nullptr);
      }
      return std::move(line_);
    }
    for (int depth = 0; depth < 12 && at_ < words_.size(); ++depth) {
      if (!One()) break;
    }
    return std::move(line_);
  }

 private:
  void Program(const std::string& program, const ShellWord& word) {
    Invocation invocation;
    invocation.program = program;
    invocation.name = word.value;
    invocation.word = word;
    line_.chain.push_back(std::move(invocation));
  }

  void Operand() { line_.chain.back().operands.push_back(words_[at_++]); }

  // Flags from here on, until an operand or the end.
  void Flags(const Grammar* grammar) {
    Invocation& program = line_.chain.back();
    while (at_ < words_.size() && LooksLikeFlag(words_[at_])) {
      const ShellWord& word = words_[at_++];
      if (word.value == "--") return;
      Flag flag;
      flag.word = word;
      const size_t equals = word.value.find('=');
      flag.name = Dashes(word.value.substr(0, equals));
      const std::string letter = word.value.substr(0, 2);
      if (grammar != nullptr && word.value.size() > 2 && InList(grammar->variables, letter) && letter != "--") {
        flag.name = letter;  // -eNAME=value
        flag.has_value = true;
        flag.value = word.From(2);
      } else if (equals != std::string::npos) {
        flag.has_value = true;
        flag.value = word.From(equals + 1);
      } else if (grammar != nullptr && InList(grammar->pairs, flag.name)) {
        const bool variable = flag.name == "-genv" || flag.name == "-env";
        if (variable && at_ + 1 < words_.size()) Variable(words_[at_].value, words_[at_ + 1], words_[at_]);
        at_ = std::min(at_ + 2, words_.size());
      } else if (!(grammar != nullptr && InList(grammar->switches, flag.name)) && at_ < words_.size() &&
                 !LooksLikeFlag(words_[at_])) {
        flag.has_value = true;
        flag.value = words_[at_++];
      }
      if (grammar != nullptr && flag.has_value) {
        if (InList(grammar->variables, flag.name)) Variables(flag, false);
        if (InList(grammar->variable_lists, flag.name)) Variables(flag, true);
      } else if (flag.has_value && InList(" -e -x -E --env ", flag.name) &&
                 lint::Variables::Complete(flag.value.value)) {
        Variables(flag, false);  // tmux -e A=1, and whatever else passes variables on so
      }
      program.flags.push_back(std::move(flag));
    }
  }

  void Variable(const std::string& name, const ShellWord& value, const ShellWord& place) {
    ShellAssignment assignment;
    assignment.name = name;
    assignment.value = value;
    assignment.line = place.line;
    assignment.column = place.column;
    line_.environment.push_back(std::move(assignment));
  }

  // "A=1", "A" (passed on as it is) or "ALL,A=1,B".
  void Variables(const Flag& flag, bool list) {
    const std::string& text = flag.value.value;
    for (size_t start = 0; start <= text.size();) {
      const size_t end = list ? std::min(text.find(',', start), text.size()) : text.size();
      const ShellWord part = flag.value.From(start, end - start);
      start = end + 1;
      const size_t equals = part.value.find('=');
      const std::string name = part.value.substr(0, equals);
      if (!IsName(name) || name == "ALL" || name == "NONE" || name == "NIL") continue;
      ShellWord value = part.From(std::min(equals, part.value.size() - 1) + 1);
      if (equals == std::string::npos) value.known = false;
      Variable(name, value, part);
    }
  }

  // One program and its flags; false when the rest is its operands.
  bool One() {
    const ShellWord word = words_[at_++];
    std::string program = Canonical(word.value);
    if (program == "eval" && at_ + 1 == words_.size()) {
      line_.scripts.push_back(words_[at_++]);
      return false;
    }
    for (const Wrapper& wrapper : kWrappers) {
      if (wrapper.program == program) return Unwrap(wrapper);
    }
    if (program == "env") return Env();
    if (program == "bash" || program == "sh" || program == "zsh" || program == "ssh" || program == "pdsh") {
      return Shell(program, word);
    }
    if (program == "python") return Python(word);
    if (program == "accelerate" || program == "docker" || program == "apptainer") {
      if (at_ < words_.size() && !LooksLikeFlag(words_[at_])) {
        if (program == "docker" && words_[at_].value == "compose") {  // docker compose -f a.yaml run
          while (at_ + 1 < words_.size() && words_[at_].value != "run" && words_[at_].value != "exec") ++at_;
        }
        const std::string& verb = words_[at_].value;
        if ((program == "accelerate" && verb != "launch") ||
            (program != "accelerate" && verb != "run" && verb != "exec" && verb != "shell" && verb != "create")) {
          program += " " + verb;
        }
        ++at_;
      }
    }
    Program(program, word);
    const Grammar* grammar = GrammarOf(program);
    if (program == "torchrun" || program == "accelerate" || program == "deepspeed") {
      Launcher(grammar);
      return false;
    }
    if (program == "docker" || program == "apptainer") {
      Flags(grammar);
      if (at_ < words_.size()) Operand();  // the image
      return at_ < words_.size();
    }
    if (grammar != nullptr && grammar->wraps) {
      Flags(grammar);
      return at_ < words_.size();
    }
    if (word.value.size() > 3 &&
        (word.value.rfind(".py") == word.value.size() - 3 || word.value.rfind(".sh") == word.value.size() - 3)) {
      line_.chain.back().program = "script";
    }
    // Another program: its flags, and a launcher somewhere behind them (nsys profile ... torchrun ...).
    static const std::set<std::string> kOuter = {"nsys",     "ncu",    "conda",      "uv",     "poetry",
                                                 "dlprof",   "py-spy", "gdb",        "xargs",  "enroot",
                                                 "mamba",    "pixi",   "micromamba", "strace", "compute-sanitizer",
                                                 "cuda-gdb", "perf",   "rocprof",    "watch",  "parallel",
                                                 "memray",   "scalene"};
    if (kOuter.count(program) != 0) {
      for (size_t i = at_; i < words_.size(); ++i) {
        const std::string inner = Canonical(words_[i].value);
        if (inner == "torchrun" || inner == "python" || inner == "deepspeed" || inner == "accelerate" ||
            inner == "srun" || inner == "mpirun" || inner == "bash") {
          at_ = i;
          return true;
        }
      }
    }
    while (at_ < words_.size()) {
      Flags(grammar);
      if (at_ < words_.size()) Operand();
    }
    const Invocation& read = line_.chain.back();
    if (program == "kubectl" && read.operands.size() > 1 && read.operands[1].value == "env") {  // set env NAME=value
      for (const ShellWord& operand : read.operands) {
        if (Assigns(operand)) Assign(operand);
      }
    }
    if (const Flag* wrap = FindFlag(read, "--wrap"); program == "sbatch" && wrap != nullptr) {
      line_.scripts.push_back(wrap->value);
    }
    return false;
  }

  bool Unwrap(const Wrapper& wrapper) {
    int operands = wrapper.operands;
    while (at_ < words_.size()) {
      if (LooksLikeFlag(words_[at_])) {
        const bool valued = InList(wrapper.valued, words_[at_].value);
        at_ += valued ? 2 : 1;
      } else if (operands-- > 0) {
        ++at_;
      } else {
        break;
      }
    }
    while (at_ < words_.size() && Assigns(words_[at_])) Assign(words_[at_++]);
    return at_ < words_.size();
  }

  static bool Assigns(const ShellWord& word) {
    const size_t equals = word.value.find('=');
    return equals != std::string::npos && IsName(std::string_view(word.value).substr(0, equals));
  }

  void Assign(const ShellWord& word) {
    const size_t equals = word.value.find('=');
    ShellWord value = word.From(equals + 1);
    value.known = word.known;
    Variable(word.value.substr(0, equals), value, word);
  }

  bool Env() {
    while (at_ < words_.size()) {
      const ShellWord& word = words_[at_];
      if (Assigns(word)) {
        Assign(word);
      } else if (word.value == "-u" || word.value == "-C") {
        ++at_;
      } else if (!LooksLikeFlag(word)) {
        return true;
      }
      ++at_;
    }
    return false;
  }

  bool Shell(const std::string& program, const ShellWord& word) {
    Program(program, word);
    const bool remote = program == "ssh" || program == "pdsh";
    while (at_ < words_.size() && LooksLikeFlag(words_[at_])) {
      const std::string& flag = words_[at_++].value;
      const bool command = !remote && flag[1] != '-' && flag.find('c') != std::string::npos;
      if (command && at_ < words_.size()) {
        line_.scripts.push_back(words_[at_++]);
        return false;
      }
      if (remote && std::string_view("-p -i -l -o -w -F").find(flag) != std::string_view::npos && at_ < words_.size()) {
        ++at_;
      }
    }
    if (remote && program == "ssh" && at_ < words_.size()) ++at_;  // the host
    if (remote) {
      if (at_ + 1 == words_.size() && words_[at_].quoted) {
        line_.scripts.push_back(words_[at_++]);
        return false;
      }
      return at_ < words_.size();
    }
    if (at_ < words_.size()) Script();
    return false;
  }

  bool Python(const ShellWord& word) {
    while (at_ < words_.size() && LooksLikeFlag(words_[at_])) {
      const std::string flag = words_[at_].value;
      if (flag == "-m" && at_ + 1 < words_.size()) {
        const std::string module = words_[at_ + 1].value;
        at_ += 2;
        if (module == "torch.distributed.run" || module == "torch.distributed.launch") {
          Program("torchrun", word);
          line_.chain.back().name = module;
          Launcher(GrammarOf("torchrun"));
          return false;
        }
        if (module == "accelerate.commands.launch" || module == "deepspeed.launcher.runner") {
          Program(module[0] == 'a' ? "accelerate" : "deepspeed", word);
          Launcher(GrammarOf(line_.chain.back().program));
          return false;
        }
        Program("python", word);
        Program("script", words_[at_ - 1]);
        ScriptArguments();
        return false;
      }
      at_ += flag == "-W" || flag == "-X" || flag == "-c" ? 2 : 1;
      if (flag == "-c") {
        Program("python", word);
        at_ = words_.size();
        return false;
      }
    }
    Program("python", word);
    if (at_ < words_.size()) Script();
    return false;
  }

  void Launcher(const Grammar* grammar) {
    // A list of flags that is not known here ($ARGS) stands for flags, not for the script.
    while (at_ < words_.size()) {
      Flags(grammar);
      if (at_ >= words_.size()) return;
      const std::string& text = words_[at_].value;
      const bool unknown = !words_[at_].known && text.find(".py") == std::string::npos && at_ + 1 < words_.size();
      // ${ARGS} may stand for flags or for the script: what follows tells.
      if (!unknown || !LaunchersFlag(words_[at_ + 1])) break;
      Operand();
    }
    Script();
  }

  // A flag that belongs to a launcher rather than to a script.
  static bool LaunchersFlag(const ShellWord& word) {
    static const char* const kFlags[] = {
        "--nnodes",       "--nproc",           "--node-rank",          "--master",
        "--rdzv",         "--max-restarts",    "--standalone",         "--num-processes",
        "--num-machines", "--machine-rank",    "--main-process",       "--config-file",
        "--num-gpus",     "--num-nodes",       "--hostfile",           "--log-dir",
        "--tee",          "--mixed-precision", "--local-ranks-filter", "--role"};
    if (!word.known && word.value[0] == '$') return true;
    const std::string name = Dashes(word.value);
    return std::any_of(std::begin(kFlags), std::end(kFlags),
                       [&](const char* flag) { return name.rfind(flag, 0) == 0; });
  }

  void Script() {
    if (at_ >= words_.size()) return;
    Program("script", words_[at_]);
    ++at_;
    ScriptArguments();
  }

  void ScriptArguments() {
    while (at_ < words_.size()) {
      Flags(nullptr);
      if (at_ < words_.size()) Operand();
    }
  }

  const std::vector<ShellWord>& words_;
  size_t at_ = 0;
  CommandLine line_;
};

}  // namespace

CommandLine TakeApart(const ShellCommand& command) { return Taker(command).Take(); }

const Flag* FindFlag(const Invocation& program, const std::string& name) {
  for (const Flag& flag : program.flags) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

const Invocation* FindProgram(const CommandLine& line, const std::string& program) {
  for (const Invocation& one : line.chain) {
    if (one.program == program) return &one;
  }
  return nullptr;
}

bool RunsJob(const CommandLine& line) {
  static const std::set<std::string> kJob = {"torchrun", "accelerate", "deepspeed", "srun",    "mpirun",
                                             "python",   "script",     "docker",    "lockstep"};
  return std::any_of(line.chain.begin(), line.chain.end(),
                     [](const Invocation& one) { return kJob.count(one.program) != 0; });
}

}  // namespace lockstep::lint
