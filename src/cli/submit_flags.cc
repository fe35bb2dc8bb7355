#include "cli/submit_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/arguments.h"
#include "base/digits.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/run_flags.h"
#include "submit/platforms.h"

namespace lockstep::cli {
namespace {

using submit::Job;

struct SubmitFlag {
  const char* name;
  const char* value;  // null for a switch
  const char* help;
  Status (*set)(const std::string& value, SubmitAsk* ask);  // null: a key of the description, by the flag's name
};

Status PutMount(const std::string& value, SubmitAsk* ask) {
  const std::vector<std::string> parts = Split(value, ':');
  if (parts.size() < 2 || parts.size() > 3 || (parts.size() == 3 && parts[2] != "ro")) {
    return Status(Code::kUsage, fmt::format("expected FROM:TO or FROM:TO:ro, found '{}'", Printable(value)));
  }
  ask->job.mounts.push_back({parts[0], parts[1], parts.size() == 3});
  return Status::Ok();
}

Status PutPair(const std::string& value, std::map<std::string, std::string>* pairs) {
  const size_t equals = value.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return Status(Code::kUsage, fmt::format("expected NAME=VALUE, found '{}'", Printable(value)));
  }
  (*pairs)[value.substr(0, equals)] = value.substr(equals + 1);
  return Status::Ok();
}

Status PutNumber(const std::string& value, int least, std::optional<int>* number) {
  const std::optional<int> read = ParseInteger(value);
  if (!read || *read < least) {
    return Status(Code::kUsage, fmt::format("expected a number of at least {}, found '{}'", least, Printable(value)));
  }
  *number = *read;
  return Status::Ok();
}

Status PutBytes(const std::string& value, std::optional<uint64_t>* bytes) {
  Result<uint64_t> read = ParseSize(value);
  if (!read.ok()) return read.status();
  *bytes = *read;
  return Status::Ok();
}

const std::vector<SubmitFlag>& SubmitFlags() {
#define TEXT(member) [](const std::string& v, SubmitAsk* a) -> Status { return a->job.member = v, Status::Ok(); }
#define FLAG(member) [](const std::string&, SubmitAsk* a) -> Status { return a->member = true, Status::Ok(); }
  static const std::vector<SubmitFlag> flags = {
      {"--platform", "NAME", "slurm, kubernetes, pytorchjob, trainjob, volcano, kubebrain, lsf, pbs or ssh",
       TEXT(platform)},
      {"--render", nullptr, "print the job file and submit nothing", FLAG(render)},
      {"--check", nullptr, "check the description and the job file, ask the client, submit nothing", FLAG(check)},
      {"--dry-run", nullptr, "print what would happen and do nothing", FLAG(dry_run)},
      {"--json", nullptr, "one JSON document on stdout", FLAG(json)},
      {"--template", "FILE", "a template of your own instead of the platform's (docs/submit.md)",
       [](const std::string& v, SubmitAsk* a) -> Status { return a->template_file = v, Status::Ok(); }},
      {"--set", "KEY=VALUE", "set a key of the description (repeatable)", nullptr},
      {"--gpus", "N", "GPUs of each node",
       [](const std::string& v, SubmitAsk* a) -> Status { return PutNumber(v, 1, &a->job.gpus); }},
      {"--cpus", "N", "CPUs of each node",
       [](const std::string& v, SubmitAsk* a) -> Status { return PutNumber(v, 1, &a->job.cpus); }},
      {"--memory", "SIZE", "memory of each node: 500GiB",
       [](const std::string& v, SubmitAsk* a) -> Status { return PutBytes(v, &a->job.memory); }},
      {"--time", "DURATION", "limit of the job: 30m, 24h, 2d",
       [](const std::string& v, SubmitAsk* a) -> Status {
         Result<std::chrono::milliseconds> time = ParseDuration(v);
         if (!time.ok()) return time.status();
         return a->job.time = *time, Status::Ok();
       }},
      {"--image", "IMAGE", "container image", TEXT(image)},
      {"--mount", "FROM:TO[:ro]", "a folder in the container (repeatable); FROM is a path or pvc/NAME", PutMount},
      {"--secret", "NAME=REF", "a variable from SECRET/KEY (Kubernetes) or from a file of the nodes (repeatable)",
       [](const std::string& v, SubmitAsk* a) -> Status { return PutPair(v, &a->job.secrets); }},
      {"--queue", "NAME", "queue", TEXT(queue)},
      {"--partition", "NAME", "partition of SLURM", TEXT(partition)},
      {"--account", "NAME", "account or project", TEXT(account)},
      {"--namespace", "NAME", "namespace of Kubernetes", TEXT(name_space)},
      {"--array", "RANGE", "job array: 0-9, or 0-9%2", TEXT(array)},
      {"--hosts", "HOST,HOST", "hosts of ssh, one per node",
       [](const std::string& v, SubmitAsk* a) -> Status { return a->job.hosts = Split(v, ','), Status::Ok(); }},
      {"--native", "LINE", "a further line of the platform: --constraint=h100 (repeatable)",
       [](const std::string& v, SubmitAsk* a) -> Status { return a->job.native.push_back(v), Status::Ok(); }},
      {"--output", "FILE", "file of the job's output", TEXT(output)},
      {"--lockstep", "PATH", "lockstep on the nodes; default: this program, in containers the one in PATH",
       TEXT(lockstep)},
  };
#undef TEXT
#undef FLAG
  return flags;
}

std::vector<FlagSpec> SubmitSpecs() {
  std::vector<FlagSpec> specs;
  for (const SubmitFlag& flag : SubmitFlags()) {
    specs.push_back({.name = flag.name, .aliases = {}, .takes_value = flag.value != nullptr});
  }
  return specs;
}

// Flags of run that say where the launcher is.
bool IsPlaced(const std::string& name) {
  static const std::set<std::string> flags = {"--node-rank",     "--master-addr", "--master-port", "--rdzv-backend",
                                              "--rdzv-endpoint", "--rdzv-id",     "--rdzv-conf",   "--standalone",
                                              "--level",         "--exec",        "--token-file"};
  return flags.count(name) > 0;
}

// The key of the description whose value a flag takes the place of.
std::string KeyOf(const std::string& flag) {
  static const std::map<std::string, std::string> others = {{"--nnodes", "nodes"},
                                                            {"--nproc-per-node", "ranks"},
                                                            {"--max-restarts", "restart"},
                                                            {"--mount", "mounts"},
                                                            {"--secret", "secrets"}};
  if (const auto other = others.find(flag); other != others.end()) return other->second;
  return flag.substr(2);
}

// What the job's size is called on the command line of run; the rest goes to the launcher as it is.
Status TakeRunFlag(const std::string& word, SubmitAsk* ask) {
  const size_t equals = word.find('=');
  const std::string name = word.substr(0, equals), value = equals == std::string::npos ? "" : word.substr(equals + 1);
  Job& job = ask->job;
  const auto in = [&](const Status& status) { return status.Context(name); };
  std::optional<int> number;
  if (name == "--nnodes") {
    LOCKSTEP_RETURN_IF_ERROR(in(PutNumber(value, 1, &number)));
    job.nodes = *number;
    job.nodes_given = true;
  } else if (name == "--nproc-per-node") {
    if (value == "gpu" || value == "auto") {
      job.ranks.reset();
      ask->ranks_from_cpus = value == "auto";
      return Status::Ok();
    }
    ask->ranks_from_cpus = false;
    return in(PutNumber(value, 1, &job.ranks));
  } else if (name == "--max-restarts") {
    LOCKSTEP_RETURN_IF_ERROR(in(PutNumber(value, 0, &number)));
    job.failures = *number;
  } else if (name == "--name") {
    job.name = value;
  } else if (name == "--workdir") {
    job.workdir = value;
  } else if (name == "--env") {
    return in(PutPair(value, &job.env));
  } else if (name == "--grace") {
    Result<std::chrono::milliseconds> grace = ParseDuration(value);
    if (!grace.ok()) return in(grace.status());
    job.grace = *grace;
  } else {
    if (IsPlaced(name)) {
      return Status(Code::kUsage, fmt::format("{}: the job file says it, node by node", name), "remove it");
    }
    job.flags.push_back(word);
  }
  return Status::Ok();
}

// Of a flag that is there twice the launcher takes the last, and the job file has promised the other: a run of its own
// for each job of an array, a stop that leaves the time to save, and as many restarts as the platform allows.
Status CheckTwice(const Job& job, const std::vector<std::string>& given, const std::string& where) {
  struct Row {
    std::string_view key, flag;
    bool said = true;
  };
  for (const auto& [key, flag, said] :
       {Row{"name", "--name"}, Row{"grace", "--grace"}, Row{"restart.failures", "--max-restarts", job.failures > 0}}) {
    if (!said || std::find(given.begin(), given.end(), flag) == given.end()) continue;
    return Status(Code::kUsage, fmt::format("{}: {} is what the key {} says", where, flag, key),
                  fmt::format("remove it there; write {}: in the description, or {} before the program", key, flag));
  }
  return Status::Ok();
}

// The names of the launcher's flags.
std::vector<std::string> NamesOf(const SplitLine& line) {
  std::vector<std::string> names;
  for (const std::string& word : line.run) names.push_back(word.substr(0, word.find('=')));
  return names;
}

// The launcher's part of the command line, as the launcher will read it.
Status CheckLauncherFlags(const Job& job) {
  const submit::Command command = submit::CommandOf(job);
  if (command.words.empty()) return Status::Ok();
  std::vector<std::string> words = {"run"};
  words.insert(words.end(), job.flags.begin(), job.flags.end());
  Status twice(Code::kUsage,
               fmt::format("the command line of lockstep {} says where its nodes are, and the job file does",
                           command.subcommand),
               "write nodes, ranks and gpus in the description instead of flags in program");
  const Result<SplitLine> further = SplitRunFlags({}, job.flags, "see lockstep run --help");
  if (!further.ok()) return further.status().Context("flags");
  if (further->program) {
    return Status(Code::kUsage,
                  fmt::format("flags: '{}' is no flag, and the launcher would take it for the program",
                              Printable(*further->program)),
                  "write the program and its arguments in program");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckTwice(job, NamesOf(*further), "flags"));
  if (command.subcommand == "run") {
    const Result<SplitLine> line = SplitRunFlags({}, command.words, "");
    if (line.ok()) LOCKSTEP_RETURN_IF_ERROR(CheckTwice(job, NamesOf(*line), "program"));  // else ParseRunFlags says why
    words.insert(words.end(), command.words.begin(), command.words.end());
  } else {
    std::vector<std::string> names;
    for (const std::string& word : command.words) {
      std::string name = word.substr(0, word.find('='));
      std::replace(name.begin(), name.end(), '_', '-');
      if (IsPlaced(name) || name == "--nnodes" || name == "--nproc-per-node") return twice;
      names.push_back(std::move(name));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckTwice(job, names, "program"));
    words.emplace_back("recipe");
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // No environment: PET_* of this machine say nothing about the job's nodes.
  Result<RunFlags> flags = ParseRunFlags(static_cast<int>(words.size()), argv.data(), {}, ParseMode::kRun);
  if (!flags.ok()) return flags.status();
  const place::Flags& place = flags->options.place;
  if (place.nnodes || place.node_rank || place.master_addr || place.nproc_per_node || place.master_port ||
      !place.rdzv_endpoint.empty() || place.standalone) {
    return twice;
  }
  return Status::Ok();
}

}  // namespace

Result<SubmitAsk> ParseSubmit(const std::vector<std::string>& args) {
  SubmitAsk ask;
  const std::vector<FlagSpec> specs = SubmitSpecs();
  std::vector<ScannedFlag> own;
  std::vector<std::string> run, rest = args;
  std::optional<std::string> file;
  for (;;) {
    Result<SplitLine> line = SplitRunFlags(specs, rest, "see lockstep submit --help");
    if (!line.ok()) return line.status();
    if (line->help) {
      ask.help = true;
      return ask;
    }
    own.insert(own.end(), line->own.begin(), line->own.end());
    run.insert(run.end(), line->run.begin(), line->run.end());
    if (!line->program) break;
    const std::string& word = *line->program;
    const bool description = word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
    if (!description || file) {
      if (file) {
        return Status(Code::kUsage, fmt::format("'{}' stands after the description", Printable(word)),
                      "the program of a description is its key program; flags may follow it");
      }
      ask.job.program = {word};
      ask.job.program.insert(ask.job.program.end(), line->args.begin(), line->args.end());
      break;
    }
    file = word;
    rest = line->args;  // flags may follow a description
  }
  if (file || std::any_of(own.begin(), own.end(), [](const auto& flag) { return flag.spelling == "--set"; })) {
    Result<ConfigTree> tree = file ? ConfigTree::Load(*file) : ConfigTree::Empty("command line");
    if (!tree.ok() && file && access(file->c_str(), F_OK) != 0) {
      return Status(Code::kEnvironment, fmt::format("there is no description '{}'", Printable(*file)),
                    "docs/formats/job.md shows how to write one; without: lockstep submit --nnodes 2 train.py");
    }
    if (!tree.ok()) return tree.status();
    for (const ScannedFlag& flag : own) {
      if (std::string(SubmitFlags()[flag.index].name) == "--set") LOCKSTEP_RETURN_IF_ERROR(tree->Override(flag.value));
    }
    Result<Job> job = submit::ReadJob(*tree);
    if (!job.ok()) return job.status();
    if (!ask.job.program.empty()) job->program = ask.job.program;
    ask.job = *job;
    if (file) ask.source = *file;
    ask.description = std::move(*tree);
  }
  for (const ScannedFlag& flag : own) {
    const SubmitFlag& row = SubmitFlags()[flag.index];
    if (row.set == nullptr) continue;
    LOCKSTEP_RETURN_IF_ERROR(row.set(flag.value, &ask).Context(row.name));
    if (ask.description) ask.description->Take(KeyOf(row.name));
  }
  for (const std::string& word : run) {
    if (word == "--json") {
      ask.json = true;
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(TakeRunFlag(word, &ask));
    if (ask.description) ask.description->Take(KeyOf(word.substr(0, word.find('='))));
  }
  if (ask.ranks_from_cpus && !ask.job.gpus) ask.job.ranks = ask.job.cpus;
  LOCKSTEP_RETURN_IF_ERROR(CheckLauncherFlags(ask.job));
  // The value of a flag of the launcher names no job.
  if (const submit::Command command = submit::CommandOf(ask.job); ask.job.name.empty() && command.subcommand == "run") {
    Result<SplitLine> line = SplitRunFlags({}, command.words, "");
    if (line.ok() && line->program) {
      line->args.insert(line->args.begin(), *line->program);
      ask.job.name = submit::DefaultName({.program = std::move(line->args)});
    }
  }
  return ask;
}

std::string SubmitHelp() {
  std::string out =
      "usage: lockstep submit [flags] JOB.yaml\n"
      "       lockstep submit [flags] [flags of run] PROGRAM [arguments of the program]\n\n"
      "Writes the job file of a cluster from one short description, and hands it to the cluster's own client.\n"
      "PROGRAM may be `lockstep train RECIPE ...`. Further flags of `lockstep run` go to the launcher.\n\n";
  for (const SubmitFlag& flag : SubmitFlags()) {
    const std::string left =
        fmt::format("  {}{}", flag.name, flag.value == nullptr ? "" : fmt::format(" {}", flag.value));
    out += fmt::format("{:<32}{}", left, left.size() >= 31 ? "\n" + std::string(32, ' ') : "") +
           WrapText(flag.help, 32, 110);
  }
  out +=
      "\nWithout --platform: ssh where the job names hosts, else the one client of sbatch, bsub, qsub and kubectl "
      "that\n"
      "is installed. Flags win over the description.\n\n"
      "examples:\n"
      "  lockstep submit --render --platform slurm job.yaml\n"
      "  lockstep submit --check --platform slurm job.yaml --nnodes 4\n"
      "  lockstep submit --dry-run --platform slurm --nnodes 2 --gpus 8 --time 24h train.py --lr 1e-4\n"
      "  lockstep submit --render --platform kubernetes --gpus 8 --image pytorch:mine lockstep train taehv\n"
      "  lockstep submit --render --platform slurm --template ours.sh job.yaml\n";
  return out;
}

}  // namespace lockstep::cli
