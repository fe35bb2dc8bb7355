#include "launch/worker_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/process.h"
#include "base/text.h"
#include "launch/activation.h"
#include "launch/profile_hook.h"

namespace lockstep::launch {
namespace {

// Set below for every worker, and therefore never taken over from a launcher this one runs under.
constexpr std::array<std::string_view, 27> kIdentity = {
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE",
    "LOCKSTEP_RUN_DIR", "LOCKSTEP_RUN_ID", "LOCKSTEP_ATTEMPT", "LOCKSTEP_RESTART_COUNT", "LOCKSTEP_METRICS",
    "LOCKSTEP_NODE", "LOCKSTEP_PROFILE",
    // DeepSpeed's and Horovod's names of the same things: those of an outer launcher would contradict ours.
    "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE"};

// Of an outer launcher, about an outer launcher: a rank must not see them.
constexpr std::array<std::string_view, 4> kRemoved = {
    "LOCKSTEP_TOKEN",    // the job's secret
    "LOCKSTEP_CONTROL",  // between launchers of a fan-out
    "LOCKSTEP_NPROC_BY_NODE",
    "TORCHELASTIC_TIMER_FILE",  // a pipe to torchrun's watchdog
};

class Builder {
 public:
  explicit Builder(Environment base) : env_(std::move(base)) {}

  void Set(const std::string& name, std::string value) { env_[name] = std::move(value); }
  void Remove(std::string_view name) { env_.erase(std::string(name)); }
  bool Has(const std::string& name) const { return env_.contains(name); }
  std::string Get(const std::string& name) const { return Has(name) ? env_.at(name) : ""; }
  // An empty value is a value: somebody switched the default off.
  void Default(const std::string& name, const std::string& value) { env_.try_emplace(name, value); }

  std::vector<std::string> Take() const {
    std::vector<std::string> out;
    out.reserve(env_.size());
    for (const auto& [name, value] : env_) out.push_back(fmt::format("{}={}", name, value));
    return out;
  }

 private:
  Environment env_;
};

// PyTorch reads two spellings of one setting, an old and a new one; whichever the user set decides.
void DefaultEither(const std::string& name, const std::string& old_name, const std::string& value, bool old_too,
                   Builder* env) {
  if (env->Has(name)) return;
  if (env->Has(old_name)) return;
  env->Set(name, value);
  if (old_too) env->Set(old_name, value);
}

void SetEvidence(const WorkerIdentity& who, bool old_names, Builder* env) {
  // 3: on a time-out abort the communicators after the Flight Recorder dump (torchrun's 1 suppresses the dump).
  env->Default("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3");
  DefaultEither("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", old_names, env);
  env->Default("TORCH_NCCL_DUMP_ON_TIMEOUT", "1");
  if (!who.log_dir_of_node.empty()) {
    // PyTorch appends the rank; its analyzer expects this stem.
    DefaultEither("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                  who.log_dir_of_node + "/nccl_trace_rank_", old_names, env);
  }
  // Through this pipe a stuck rank is asked for a dump (docs/hang.md); PyTorch makes it and appends rank and ".pipe".
  if (!who.flight_pipe.empty()) env->Default("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", who.flight_pipe);
  env->Default("PYTHONFAULTHANDLER", "1");
}

// What --env names is left alone.
void SetDebug(const WorkerIdentity& who, const RunOptions& options, Builder* env) {
  const auto set = [&](const std::string& name, const char* value) {
    const bool chosen =
        std::any_of(options.env.begin(), options.env.end(), [&](const auto& pair) { return pair.first == name; });
    if (!chosen) env->Set(name, value);
  };
  if (env->Get("NCCL_DEBUG") != "TRACE") set("NCCL_DEBUG", "INFO");
  env->Default("NCCL_DEBUG_SUBSYS", "INIT,NET,ENV,GRAPH");
  // %h and %p are filled in by NCCL: host and process.
  if (!who.log_dir_of_node.empty()) env->Default("NCCL_DEBUG_FILE", who.log_dir_of_node + "/nccl-debug.%h.%p.log");
  set("TORCH_DISTRIBUTED_DEBUG", "DETAIL");
  set("TORCH_SHOW_CPP_STACKTRACES", "1");
}

// Which network NCCL really uses stands in its INIT and NET lines; in a file they disturb nobody.
void CollectNccl(const WorkerIdentity& who, Builder* env) {
  if (who.log_dir_of_node.empty() || env->Has("NCCL_DEBUG") || env->Has("NCCL_DEBUG_FILE")) return;
  std::string folder;
  for (char c : who.log_dir_of_node) folder += c == '%' ? std::string("%%") : std::string(1, c);
  env->Set("NCCL_DEBUG", "INFO");
  env->Default("NCCL_DEBUG_SUBSYS", "INIT,NET");
  env->Set("NCCL_DEBUG_FILE", fmt::format("{}/nccl-rank-{}.%p.log", folder, who.rank));
}

void SetIdentity(const WorkerIdentity& who, const RunOptions& options, Builder* env) {
  const auto number = [&](const char* name, int value) { env->Set(name, std::to_string(value)); };
  number("RANK", who.rank);
  number("LOCAL_RANK", options.virtual_local_rank ? 0 : who.local_rank);
  number("WORLD_SIZE", who.world_size);
  number("LOCAL_WORLD_SIZE", who.local_world_size);
  number("GROUP_RANK", who.node_rank);
  number("GROUP_WORLD_SIZE", who.nnodes);
  env->Set("ROLE_NAME", options.role);
  // One role per job, so its ranks are the job's.
  number("ROLE_RANK", who.rank);
  number("ROLE_WORLD_SIZE", who.world_size);
  env->Set("MASTER_ADDR", who.master_addr);
  number("MASTER_PORT", who.master_port);
  number("TORCHELASTIC_RESTART_COUNT", who.restart_count);
  number("TORCHELASTIC_MAX_RESTARTS", options.max_restarts);
  env->Set("TORCHELASTIC_RUN_ID", options.rdzv_id.empty() ? who.run_id : options.rdzv_id);
  // PyTorch compares with the word.
  env->Set("TORCHELASTIC_USE_AGENT_STORE", who.agent_store ? "True" : "False");
  env->Set("TORCHELASTIC_ERROR_FILE", who.error_file);
  std::vector<std::string> signals;
  for (int number_of_signal : options.signals) signals.push_back(SignalName(number_of_signal));
  env->Set("TORCHELASTIC_SIGNALS_TO_HANDLE", signals.empty() ? "SIGTERM,SIGINT,SIGHUP,SIGQUIT" : Join(signals, ","));
  env->Set("LOCKSTEP_RUN_DIR", who.run_dir);
  env->Set("LOCKSTEP_RUN_ID", who.run_id);
  number("LOCKSTEP_ATTEMPT", who.attempt);
  number("LOCKSTEP_RESTART_COUNT", who.restart_count);
  env->Set("LOCKSTEP_METRICS", who.metrics_path);
  if (options.profile) {
    env->Set("LOCKSTEP_PROFILE", fmt::format("{}..{}", options.profile->first, options.profile->second));
    // A train program traces by itself; for Python a module of ours does.
    if (!options.train_program && !who.run_dir.empty()) {
      const std::string others = env->Get("PYTHONPATH");
      env->Set("PYTHONPATH", ProfileHookDir(who.run_dir) + (others.empty() ? "" : ":" + others));
    }
  }
  env->Set("LOCKSTEP_NODE", who.node.empty() ? std::to_string(who.node_rank) : who.node);
}

// torchrun's rule: entry LOCAL_RANK of the list the launcher sees, or LOCAL_RANK itself when there is no list.
Status SetVirtualDevice(const WorkerIdentity& who, Builder* env) {
  if (!env->Has("CUDA_VISIBLE_DEVICES")) {
    env->Set("CUDA_VISIBLE_DEVICES", std::to_string(who.local_rank));
    return Status::Ok();
  }
  const std::string list = env->Get("CUDA_VISIBLE_DEVICES");
  const std::vector<std::string> gpus = Split(list, ',');
  if (who.local_rank >= static_cast<int>(gpus.size()) || Trim(gpus[who.local_rank]).empty()) {
    return Status(Code::kUsage,
                  fmt::format("--virtual-local-rank gives each rank a GPU of its own: expected at least {} on node {}, "
                              "found CUDA_VISIBLE_DEVICES={}",
                              Count(who.local_world_size, "GPU"), who.node_rank, Printable(list)),
                  "lower --nproc-per-node or widen --gpus");
  }
  env->Set("CUDA_VISIBLE_DEVICES", std::string(Trim(gpus[who.local_rank])));
  return Status::Ok();
}

}  // namespace

bool IsIdentityVariable(std::string_view name) {
  return std::find(kIdentity.begin(), kIdentity.end(), name) != kIdentity.end();
}

Status CheckUserVariable(std::string_view name) {
  if (name == "LOCKSTEP_TOKEN") {
    return Status(Code::kUsage, "the job token is never given to workers, and never on a command line",
                  "export LOCKSTEP_TOKEN before the start, or use --token-file");
  }
  if (IsIdentityVariable(name)) {
    return Status(Code::kUsage, fmt::format("{} says who a worker is and is set by the launcher", name),
                  "use --nnodes, --node-rank, --nproc-per-node, --master-addr, --master-port, --role or --name");
  }
  return Status::Ok();
}

int DefaultThreads(int cpus, int local_world_size) { return std::max(1, cpus / std::max(1, local_world_size)); }

Environment RankEnvironment(const Environment& base, const EnvChanges& program, const RunOptions& options) {
  Environment env = Apply(base, program);
  for (std::string_view name : kRemoved) env.erase(std::string(name));
  // Some images export 0, which libgomp rejects with a warning per rank: that is nobody's choice.
  if (const auto threads = env.find("OMP_NUM_THREADS");
      threads != env.end() && (threads->second.empty() || threads->second == "0")) {
    env.erase(threads);
  }
  if (!options.gpus.empty()) env["CUDA_VISIBLE_DEVICES"] = options.gpus;
  for (const auto& [name, value] : options.env) env[name] = value;
  return env;
}

Result<std::vector<std::string>> WorkerEnvironment(const WorkerIdentity& who, const Environment& base,
                                                   const RunOptions& options, const EnvChanges& program,
                                                   const RankSettings& settings) {
  for (const auto& [name, value] : options.env) LOCKSTEP_RETURN_IF_ERROR(CheckUserVariable(name));
  Builder env(RankEnvironment(base, program, options));
  for (std::string_view name : kIdentity) env.Remove(name);
  if (options.debug) SetDebug(who, options, &env);
  if (!settings.gpus.empty()) env.Default("CUDA_VISIBLE_DEVICES", settings.gpus);
  if (options.virtual_local_rank) LOCKSTEP_RETURN_IF_ERROR(SetVirtualDevice(who, &env));

  env.Default("OMP_NUM_THREADS", std::to_string(std::max(1, settings.threads)));
  SetEvidence(who, settings.old_torch_names, &env);
  for (const auto& [name, value] : settings.tuned) env.Default(name, value);
  if (settings.collect_nccl) CollectNccl(who, &env);
  SetIdentity(who, options, &env);
  return env.Take();
}

}  // namespace lockstep::launch
