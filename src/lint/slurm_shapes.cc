// What an sbatch file starts how often, and whether those processes can find each other.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/digits.h"
#include "base/text.h"
#include "lint/readers.h"

namespace lockstep::lint {
namespace {

const Fact* Directive(const Unit& unit, const std::string& name) {
  const Fact* found = nullptr;
  for (const Fact& fact : unit.facts) {
    if (fact.kind == "flag" && fact.name == "sbatch " + name) found = &fact;
  }
  return found;
}

std::optional<int> DirectiveNumber(const Unit& unit, const std::string& name) {
  const Fact* fact = Directive(unit, name);
  return fact == nullptr ? std::nullopt : ParseDigits(fact->value);
}

// GPUs of a node: --gres=gpu:a100:4, --gpus-per-node=a100:4.
std::optional<int> GpusPerNode(const Unit& unit) {
  for (const char* name : {"--gres", "--gpus-per-node"}) {
    const Fact* fact = Directive(unit, name);
    if (fact == nullptr) continue;
    for (const std::string& part : Split(fact->value, ',')) {
      if (std::string_view(name) == "--gres" && part.rfind("gpu", 0) != 0) continue;
      return ParseDigits(part.substr(part.rfind(':') == std::string::npos ? 0 : part.rfind(':') + 1));
    }
  }
  return std::nullopt;
}

std::optional<int> FlagNumber(const Invocation& program, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const Flag* flag = FindFlag(program, name);
    if (flag != nullptr) return ParseDigits(flag->value.value);
  }
  return std::nullopt;
}

class SlurmShapeFinder {
 public:
  SlurmShapeFinder(const ShellScript& script, const std::vector<CommandLine>& lines, Unit& unit)
      : script_(script), lines_(lines), unit_(unit) {}

  void Find() {
    nodes_ = DirectiveNumber(unit_, "--nodes").value_or(1);
    const std::optional<int> per_node = DirectiveNumber(unit_, "--ntasks-per-node");
    const std::optional<int> tasks = DirectiveNumber(unit_, "--ntasks");
    tasks_per_node_ = per_node ? *per_node : tasks && nodes_ > 0 ? (*tasks + nodes_ - 1) / nodes_ : 1;
    tasks_ = tasks ? *tasks : tasks_per_node_ * nodes_;
    bool steps = false;  // srun, or another way to reach the other nodes, is used somewhere
    bool starts = false;
    for (const CommandLine& line : lines_) {
      for (const Invocation& one : line.chain) {
        steps = steps || one.program == "srun" || one.program == "mpirun" || one.program == "ssh" ||
                one.program == "pdsh" || one.program == "deepspeed" || one.program == "ray";
        starts = starts || one.program == "torchrun" || one.program == "python" || one.program == "accelerate";
      }
    }
    for (size_t i = 0; i < lines_.size(); ++i) {
      const CommandLine& line = lines_[i];
      const Invocation* srun = FindProgram(line, "srun");
      const Invocation* torchrun = FindProgram(line, "torchrun");
      if (torchrun == nullptr) torchrun = FindProgram(line, "accelerate");
      if (torchrun != nullptr) Launcher(script_.commands[i], srun, *torchrun, steps);
      if (srun != nullptr && torchrun == nullptr && FindProgram(line, "python") != nullptr) Python(line, *srun, i);
    }
    if ((steps || starts) && nodes_ >= 1) Resources();
  }

 private:
  void Add(const std::string& name, int line, int column, const std::string& detail, const ShellCommand* at = nullptr) {
    Fact fact;
    fact.kind = "shape";
    fact.name = name;
    fact.detail = detail;
    fact.line = line;
    fact.column = column;
    if (at != nullptr) fact.branches = at->branches;
    unit_.facts.push_back(std::move(fact));
  }

  void Launcher(const ShellCommand& command, const Invocation* srun, const Invocation& torchrun, bool steps) {
    const std::optional<int> nproc = FlagNumber(torchrun, {"--nproc-per-node", "--nproc"});
    if (srun != nullptr) {
      int per_node = tasks_per_node_;
      const int nodes = FlagNumber(*srun, {"--nodes", "-N"}).value_or(nodes_);
      if (auto own = FlagNumber(*srun, {"--ntasks-per-node"})) {
        per_node = *own;
      } else if (auto all = FlagNumber(*srun, {"--ntasks", "-n"}); all && nodes > 0) {
        per_node = (*all + nodes - 1) / nodes;
      }
      if (per_node > 1 && nproc.value_or(2) > 1) {
        Add("slurm-tasks-times-launcher", torchrun.word.line, torchrun.word.column,
            nproc
                ? fmt::format("{} tasks x {} workers = {} processes on each node", per_node, *nproc, per_node * *nproc)
                : fmt::format("{} tasks on each node, each with its own workers", per_node),
            &command);
      }
    } else if (nodes_ > 1 && !steps) {
      Add("slurm-launcher-on-first-node", torchrun.word.line, torchrun.word.column, fmt::format("{} nodes", nodes_),
          &command);
    }
    const std::optional<int> gpus = GpusPerNode(unit_);
    if (gpus && nproc && *nproc > *gpus && torchrun.program == "torchrun") {
      Add("slurm-more-workers-than-gpus", torchrun.word.line, torchrun.word.column,
          fmt::format("{} workers on {} GPU{}", *nproc, *gpus, *gpus == 1 ? "" : "s"), &command);
    }
  }

  // srun python with several tasks: who tells a task its rank?
  void Python(const CommandLine& line, const Invocation& srun, size_t i) {
    int tasks = tasks_;
    if (auto own = FlagNumber(srun, {"--ntasks", "-n"})) tasks = *own;
    if (auto own = FlagNumber(srun, {"--ntasks-per-node"})) tasks = *own * nodes_;
    if (tasks <= 1) return;
    for (const Fact& fact : unit_.facts) {
      if (fact.kind != "variable" || (fact.name != "RANK" && fact.name != "LOCAL_RANK")) continue;
      if (fact.lasting && (fact.value.find("SLURM_PROCID") != std::string::npos ||
                           fact.value.find("SLURM_LOCALID") != std::string::npos)) {
        Add("slurm-rank-set-once", fact.line, fact.column, fact.name);
        return;  // unit_.facts has moved
      }
    }
    // A program that asks SLURM itself says so somewhere, as a rule.
    const std::string text = AllText();
    for (const char* word :
         {"lightning", "submitit", "SLURM_PROCID", "SLURM_LOCALID", "slurm", "nemo", "composer", "jax", "horovod",
          "mpi4py", "--dist-url", "--dist_url", "init_method", "--init-method", "lockstep"}) {
      if (text.find(word) != std::string::npos) return;
    }
    std::set<std::string> set;
    for (const Fact& fact : unit_.facts) {
      if (fact.kind == "variable") set.insert(fact.name);
    }
    for (const ShellAssignment& one : line.environment) set.insert(one.name);
    const ShellWord& at = srun.word;
    if (set.count("RANK") == 0) {
      Add("slurm-no-rank", at.line, at.column, fmt::format("{} tasks", tasks), &script_.commands[i]);
    }
    if (set.count("MASTER_ADDR") == 0) {
      Add("slurm-no-master", at.line, at.column, fmt::format("{} tasks", tasks), &script_.commands[i]);
    }
  }

  std::string AllText() const {
    std::string text;
    for (const ShellCommand& command : script_.commands) {
      for (const ShellWord& word : command.words) text += word.text + " ";
      for (const ShellAssignment& one : command.assignments) text += one.value.text + " ";
      for (const HereDocument& document : command.documents) text += document.text;
    }
    return text;
  }

  // Whether anything here speaks of GPUs: preparing data needs none.
  bool UsesGpus() const {
    return std::any_of(unit_.facts.begin(), unit_.facts.end(), [](const Fact& fact) {
      if (fact.kind == "command") {
        return fact.name == "torchrun" || fact.name == "accelerate" || fact.name == "deepspeed";
      }
      return fact.kind == "variable" && (fact.name.rfind("NCCL_", 0) == 0 || fact.name.rfind("CUDA_", 0) == 0);
    });
  }

  void Resources() {
    bool gpus = false, signal = false, whole = false;
    int last = 1;
    for (const Fact& fact : unit_.facts) {
      if (fact.kind != "flag" || fact.name.rfind("sbatch ", 0) != 0) continue;
      last = fact.line;
      const std::string name = fact.name.substr(7);
      gpus = gpus || name.rfind("--gpus", 0) == 0 || name.rfind("--gres", 0) == 0 || name == "--tres-per-task" ||
             name == "--constraint" || name == "-C";
      whole = whole || name == "--exclusive" || name == "--partition" || name == "--account" || name == "-A";
      signal = signal || name == "--signal";
    }
    if (!gpus && !whole && UsesGpus()) Add("slurm-no-gpus", last, 1, "");
    const Fact* time = Directive(unit_, "--time");
    if (time != nullptr && (gpus || UsesGpus()) && !signal && Hours(time->value) >= 4) {
      Add("slurm-no-signal", time->line, time->column, time->value);
    }
  }

  // "days-hours:minutes:seconds", "hours:minutes:seconds", "minutes", "minutes:seconds", "days-hours".
  static double Hours(const std::string& text) {
    double days = 0;
    std::string rest = text;
    const size_t dash = text.find('-');
    if (dash != std::string::npos) {
      days = ParseDigits(text.substr(0, dash)).value_or(0);
      rest = text.substr(dash + 1);
    }
    std::vector<double> parts;
    for (const std::string& part : Split(rest, ':')) parts.push_back(ParseDigits(part).value_or(0));
    double hours = days * 24;
    if (dash != std::string::npos || parts.size() == 3) {
      hours += parts[0] + (parts.size() > 1 ? parts[1] / 60 : 0);
    } else {
      hours += parts[0] / 60;
    }
    return hours;
  }

  const ShellScript& script_;
  const std::vector<CommandLine>& lines_;
  Unit& unit_;
  int nodes_ = 1, tasks_per_node_ = 1, tasks_ = 1;
};

}  // namespace

void SlurmShapes(const ShellScript& script, const std::vector<CommandLine>& lines, Unit& unit) {
  SlurmShapeFinder(script, lines, unit).Find();
}

}  // namespace lockstep::lint
