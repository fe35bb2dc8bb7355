#include "cli/run_flags.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/arguments.h"
#include "base/digits.h"
#include "base/own_program.h"
#include "base/text.h"
#include "base/version.h"
#include "cli/flag_engine.h"
#include "cli/flag_values.h"
#include "cli/run_flags_table.h"
#include "launch/worker_env.h"

namespace lockstep::cli {
namespace {

std::vector<const FlagRow*> RowsFor(ParseMode mode) {
  std::vector<const FlagRow*> rows;
  for (const FlagRow& row : RunFlagTable()) {
    if (mode == ParseMode::kExplain || !row.explain_only) rows.push_back(&row);
  }
  return rows;
}

FlagSpec SpecOf(const FlagRow& row) {
  const bool optional = row.value != nullptr && row.value[0] == '[';
  return {.name = row.name,
          .aliases = row.aliases,
          .takes_value = row.value != nullptr && !optional,
          .optional_value = optional,
          .first_class = row.torchrun != Torchrun::kOurs,
          .stops = row.set == nullptr};
}

const char* CommandName(ParseMode mode) { return mode == ParseMode::kRun ? "run" : "explain"; }

// Variables first, for every flag the command line leaves out.
Status ApplyVariables(const std::vector<const FlagRow*>& rows, const std::vector<bool>& given, const Environment& env,
                      Draft* draft) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->pet == nullptr || given[i]) continue;
    const auto found = env.find(rows[i]->pet);
    if (found == env.end() || found->second.empty()) continue;
    const std::string where = fmt::format("{} (variable of {})", rows[i]->pet, rows[i]->name);
    std::string value = found->second;
    if (rows[i]->value == nullptr) {
      const Result<bool> on = ParseSwitch(value);
      if (!on.ok()) return on.status().Context(where);
      value = *on ? "1" : "0";
    }
    LOCKSTEP_RETURN_IF_ERROR(rows[i]->set(value, draft).Context(where));
  }
  return Status::Ok();
}

Status CheckSizes(const launch::RunOptions& options, bool any_master_port) {
  const place::Flags& place = options.place;
  const int nnodes = place.nnodes.value_or(1);
  if (place.nnodes && place.node_rank && *place.node_rank >= nnodes) {
    return Status(
        Code::kUsage,
        fmt::format("--node-rank {}: expected 0 to {} with --nnodes {}", *place.node_rank, nnodes - 1, nnodes),
        "node ranks count from 0");
  }
  if (place.standalone && nnodes > 1) {
    return Status(Code::kUsage, fmt::format("--standalone is one node, and --nnodes says {}", nnodes),
                  "drop one of the two");
  }
  if (any_master_port && nnodes > 1) {
    return Status(Code::kUsage,
                  fmt::format("--master-port 0: {} nodes cannot find each other on a port nobody knows", nnodes),
                  "give the same port on every node, for example 29500");
  }
  const std::string& nproc = place.nproc_per_node.value_or("");
  if (const std::optional<long> per_node = ParseDigits<long>(nproc)) {
    const long ranks = *per_node * nnodes;
    if (ranks > kMaxRanks) {
      return Status(Code::kUsage,
                    fmt::format("--nnodes {} times --nproc-per-node {}: expected at most {} ranks, found {}", nnodes,
                                nproc, kMaxRanks, ranks));
    }
    // --env may name other GPUs; then the start of the ranks finds out whether they suffice.
    const bool decides =
        !options.gpus.empty() && launch::RankEnvironment({}, {}, options).at("CUDA_VISIBLE_DEVICES") == options.gpus;
    const size_t gpus = decides ? Split(options.gpus, ',').size() : 0;
    if (options.virtual_local_rank && gpus > 0 && static_cast<size_t>(*per_node) > gpus) {
      return Status(Code::kUsage,
                    fmt::format("--virtual-local-rank gives each rank a GPU of its own: expected at most {} with "
                                "--gpus {}, found {}",
                                Count(static_cast<int64_t>(gpus), "rank"), options.gpus, nproc));
    }
  }
  return Status::Ok();
}

Status CheckProgram(ParseMode mode, const launch::RunOptions& options) {
  if (options.program.empty()) {
    if (mode == ParseMode::kExplain) return Status::Ok();
    return Status(Code::kUsage, "no program: expected a script, module or executable after the flags",
                  "lockstep run [flags] train.py [its arguments]");
  }
  if (options.run_path) return Status::Ok();  // torchrun: takes precedence over the other two
  if (options.module && options.no_python) {
    return Status(Code::kUsage, "--module and --no-python contradict each other", "drop one of the two");
  }
  if (options.module && options.program.find('/') != std::string::npos) {
    return Status(
        Code::kUsage,
        fmt::format("-m: expected a Python module name like package.train, found '{}'", Printable(options.program)),
        "for a script drop -m; to load an environment module use --module-load");
  }
  return Status::Ok();
}

// What one flag means for another.
Status Settle(ParseMode mode, const Environment& env, Draft* draft) {
  launch::RunOptions& options = draft->flags.options;
  place::Flags& place = options.place;

  if (draft->bind && draft->numa_binding && *draft->bind != *draft->numa_binding) {
    return Status(Code::kUsage, "--bind and --numa-binding contradict each other", "drop one of the two");
  }
  options.bind = draft->bind.value_or(draft->numa_binding.value_or(launch::Bind::kNone));

  if (!draft->shutdown_timeout) {
    const auto found = env.find("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    if (found != env.end() && !found->second.empty()) {
      const Result<long> seconds = ParseCount(found->second, "seconds", 0, 2000000);
      if (!seconds.ok()) return seconds.status().Context("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
      draft->shutdown_timeout = std::chrono::seconds(*seconds);
    }
  }
  if (draft->grace) {
    options.grace = *draft->grace;
  } else if (draft->shutdown_timeout) {
    options.grace = *draft->shutdown_timeout;
  }

  for (const char* key : {"timeout", "join_timeout"}) {
    const auto found = options.rdzv_conf.find(key);
    if (found == options.rdzv_conf.end()) continue;
    const Result<long> seconds = ParseCount(found->second, "seconds", 1, INT_MAX / 1000);
    if (seconds.ok()) options.join_timeout = std::chrono::seconds(*seconds);  // else refused where it was read
  }
  if (draft->join_timeout) options.join_timeout = *draft->join_timeout;

  if (place.standalone) {
    place.rdzv_backend.clear();
    place.rdzv_endpoint.clear();
    options.rdzv_id.clear();
  }
  const auto host = options.rdzv_conf.find("is_host");
  const bool is_host =
      host != options.rdzv_conf.end() && std::string("1tyTY").find(host->second[0]) != std::string::npos;
  if (is_host && !place.node_rank && !place.standalone) {
    place.node_rank = 0;
    draft->flags.warnings.push_back("--rdzv-conf is_host=1: this is node 0");
  }
  // torchrun's default, sometimes written out.
  if (options.rdzv_id == "none") options.rdzv_id.clear();

  if (!options.conda.empty() && !options.venv.empty()) {
    return Status(Code::kUsage, "--conda and --venv: a program runs in one environment", "drop one of the two");
  }
  if (options.exec && options.agent_store == launch::AgentStore::kOn) {
    return Status(Code::kUsage, "--exec replaces this launcher by the rank, and --agent-store on lets it host a store",
                  "drop one of the two");
  }
  if (options.exec && place.level == place::Level::kNode) {
    return Status(Code::kUsage, "--exec replaces this process by one rank, and --level node starts several",
                  "drop one of the two");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes(options, draft->any_master_port));
  return CheckProgram(mode, options);
}

// Everything after the program is the program's; these are hardly ever meant for it.
void WarnOfLateFlags(const launch::RunOptions& options, std::vector<std::string>* warnings) {
  static const std::vector<std::string> ours = {"--nproc-per-node", "--nnodes", "--node-rank", "--max-restarts"};
  if (options.train_program) return;
  for (const std::string& word : options.args) {
    std::string name = word.substr(0, word.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    if (std::find(ours.begin(), ours.end(), name) == ours.end()) continue;
    warnings->push_back(fmt::format("{} stands after the program and is given to it; flags of lockstep come before {}",
                                    Printable(word), Printable(options.program)));
    return;
  }
}

}  // namespace

std::string RunHelp(ParseMode mode) {
  constexpr size_t kIndent = 34, kWidth = 110;
  std::string out =
      mode == ParseMode::kRun
          ? "usage: lockstep run [flags] PROGRAM [arguments of the program]\n\n"
            "Starts PROGRAM once per rank on this node, together with the other nodes of the job, and supervises\n"
            "it. Takes torchrun's flags: replace the word torchrun by `lockstep run`.\n"
          : "usage: lockstep explain [flags] [flags of run] [PROGRAM ...]\n\n"
            "Prints which node and ranks of which job this process would be, with evidence, and starts nothing.\n";
  const std::vector<const FlagRow*> rows = RowsFor(mode);
  std::vector<std::string> groups;
  for (const FlagRow* row : rows) {
    if (row->group && std::find(groups.begin(), groups.end(), row->group) == groups.end())
      groups.emplace_back(row->group);
  }
  for (const std::string& group : groups) {
    out += fmt::format("\n{}:\n", group);
    for (const FlagRow* row : rows) {
      if (!row->group || group != row->group) continue;
      std::string left = "  ";
      for (const std::string& alias : row->aliases) left += alias + ", ";
      left += row->name;
      if (row->value) left += fmt::format("{}{}", row->value[0] == '[' ? "" : " ", row->value);
      out += left;
      if (left.size() + 2 > kIndent) {
        out += "\n" + std::string(kIndent, ' ');
      } else {
        out.append(kIndent - left.size(), ' ');
      }
      out += WrapText(row->help, kIndent, kWidth);
    }
  }
  out +=
      "\nHyphens and underscores mean the same; a unique beginning of a name is enough. torchrun's flags also come "
      "from\n"
      "PET_<NAME> variables. Everything after PROGRAM belongs to it. Durations: 30s, 5m, 1h30m; sizes: 25MiB, 100MB.\n";
  out +=
      mode == ParseMode::kRun
          ? "\nexamples:\n"
            "  lockstep run train.py --lr 1e-4                     all GPUs of this node (or what the platform says)\n"
            "  lockstep run --nproc-per-node 8 -m my.train         8 ranks of a Python module\n"
            "  lockstep run --nnodes 2 --node-rank 1 --master-addr host0 train.py\n"
            "  srun -N2 --ntasks-per-node=1 lockstep run train.py  nodes and ranks from SLURM\n"
            "  lockstep run --max-restarts 3 --name exp7 --conda torch train.py\n"
            "  lockstep run --nproc-per-node 4 ./a.out             any executable\n"
          : "\nexamples:\n"
            "  lockstep explain                                    this environment\n"
            "  lockstep explain --nproc-per-node 8 train.py        what this command line would start\n"
            "  lockstep explain --env-file /proc/4711/environ --json\n";
  return out;
}

std::string RunFlagsJson() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  const auto text = [](const char* value) { return value ? nlohmann::ordered_json(value) : nlohmann::ordered_json(); };
  for (const FlagRow& row : RunFlagTable()) {
    out.push_back({{"name", row.name},
                   {"aliases", row.aliases},
                   {"value", text(row.value)},
                   {"variable", text(row.pet)},
                   {"group", text(row.group)},
                   {"torchrun", Name(row.torchrun)},
                   {"reason", row.reason},
                   {"help", row.help},
                   {"explain_only", row.explain_only}});
  }
  return out.dump(2) + "\n";
}

Result<SplitLine> SplitRunFlags(const std::vector<FlagSpec>& own, const std::vector<std::string>& args,
                                const std::string& hint, const MeantInstead& meant) {
  std::vector<FlagSpec> specs = own;
  for (const FlagRow& row : RunFlagTable()) specs.push_back(SpecOf(row));
  Result<Scanned> scanned = ScanFlags(specs, args, hint, meant);
  if (!scanned.ok()) return scanned.status();
  SplitLine line;
  for (ScannedFlag& flag : scanned->flags) {
    const FlagSpec& spec = specs[flag.index];
    if (flag.index < own.size()) {
      line.own.push_back(std::move(flag));
    } else if (spec.name == "--help") {
      line.help = true;
    } else {
      line.run.push_back(spec.takes_value || !flag.value.empty() ? spec.name + "=" + flag.value : spec.name);
    }
  }
  line.program = std::move(scanned->program);
  line.args = std::move(scanned->args);
  return line;
}

Result<RunFlags> ParseRunFlags(int argc, char** argv, const Environment& env, ParseMode mode) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const std::vector<const FlagRow*> rows = RowsFor(mode);
  std::vector<FlagSpec> specs;
  specs.reserve(rows.size());
  for (const FlagRow* row : rows) specs.push_back(SpecOf(*row));
  Result<Scanned> scanned = ScanFlags(specs, args, fmt::format("see lockstep {} --help", CommandName(mode)));
  if (!scanned.ok()) return scanned.status();

  Draft draft;
  std::vector<bool> given(rows.size(), false);
  for (const ScannedFlag& flag : scanned->flags) {
    given[flag.index] = true;
    if (rows[flag.index]->set != nullptr) continue;
    const std::string name = rows[flag.index]->name;
    draft.flags.print_and_exit = true;
    draft.flags.text = name == "--help"      ? RunHelp(mode)
                       : name == "--version" ? VersionText("lockstep") + "\n"
                                             : RunFlagsJson();
    return std::move(draft.flags);
  }
  LOCKSTEP_RETURN_IF_ERROR(ApplyVariables(rows, given, env, &draft));
  for (const ScannedFlag& flag : scanned->flags) {
    const FlagRow& row = *rows[flag.index];
    LOCKSTEP_RETURN_IF_ERROR(row.set(row.value ? flag.value : "1", &draft).Context(row.name));
  }
  launch::RunOptions& options = draft.flags.options;
  options.program = scanned->program.value_or("");
  options.args = std::move(scanned->args);
  options.argv = args;
  // The engine itself is known wherever the command line came from; any other train program is said to be one.
  if (options.program.substr(options.program.rfind('/') + 1) == kEngineName) options.train_program = true;
  LOCKSTEP_RETURN_IF_ERROR(Settle(mode, env, &draft));
  WarnOfLateFlags(options, &draft.flags.warnings);
  return std::move(draft.flags);
}

}  // namespace lockstep::cli
