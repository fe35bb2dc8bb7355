#include "cli/run_flags_table.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/run_flag_setters.h"
#include "launch/worker_env.h"
#include "record/run_dir.h"

namespace lockstep::cli {
namespace {

constexpr char kSize[] = "Job size and placement";
constexpr char kMeet[] = "Rendezvous";
constexpr char kProgram[] = "Program";
constexpr char kSupervise[] = "Supervision";
constexpr char kLogs[] = "Logs and output";
constexpr char kMachine[] = "Hardware";
constexpr char kOther[] = "Other";
constexpr char kAccepted[] = "Accepted from torchrun, without effect";

#define SETTER(...) [](const std::string& v, Draft* d) -> Status { return __VA_ARGS__; }
#define SWITCH(member)                           \
  [](const std::string& v, Draft* d) -> Status { \
    d->flags.options.member = v != "0";          \
    return Status::Ok();                         \
  }

std::vector<FlagRow> MakeTable() {
  using T = Torchrun;
  // clang-format off
  return {
      // Size and place of the job
      {"--nnodes", {}, "N", "PET_NNODES", kSize, T::kMapped,
       "N or N:N; a range with MIN below MAX is refused, because all nodes start together",
       "Number of nodes. Default: what the platform says, else 1.",
       SETTER(Put(ParseNodes(v), &d->flags.options.place.nnodes))},
      {"--nproc-per-node", {}, "N|auto|gpu|cpu", "PET_NPROC_PER_NODE", kSize, T::kHonoured,
       "a number, auto, gpu or cpu; xpu is refused. Without it: what the platform says, else all visible GPUs, else 1",
       "Ranks on this node. Default: what the platform says, else all visible GPUs, else 1.",
       SETTER(Put(ParseRanksPerNode(v), &d->flags.options.place.nproc_per_node))},
      {"--node-rank", {}, "N", "PET_NODE_RANK", kSize, T::kHonoured,
       "also with the c10d backend, where torchrun ignores it",
       "Which node this is, from 0.",
       SETTER(PutCount(v, "a node rank", 0, kMaxNodes - 1, &d->flags.options.place.node_rank))},
      {"--level", {}, "node|process", nullptr, kSize, T::kOurs,
       "",
       "Whether this command is one node of the job, or one rank. Default: what the platform says.",
       SetLevel},
      {"--standalone", {}, nullptr, "PET_STANDALONE", kSize, T::kHonoured,
       "one node on a free port; --rdzv-backend, --rdzv-endpoint and --rdzv-id are ignored, as torchrun does",
       "One node, free ports, no rendezvous with other nodes.",
       SWITCH(place.standalone)},
      // Rendezvous
      {"--master-addr", {}, "HOST", "PET_MASTER_ADDR", kMeet, T::kHonoured,
       "also with the c10d backend",
       "Address of node 0.",
       SetMasterAddr},
      {"--master-port", {}, "PORT", "PET_MASTER_PORT", kMeet, T::kHonoured,
       "port of the launchers' rendezvous; the workers get another one that is free",
       "Port on node 0. Default: 29500 with several nodes, a free one otherwise.",
       SetMasterPort},
      {"--rdzv-endpoint", {}, "HOST[:PORT]", "PET_RDZV_ENDPOINT", kMeet, T::kHonoured,
       "where the launchers hold their rendezvous; it stands for --master-addr and --master-port",
       "Address of the launchers' rendezvous on node 0.",
       SETTER(v.empty() ? Status::Ok() : Put(ParseEndpoint(v), &d->flags.options.place.rdzv_endpoint))},
      {"--rdzv-backend", {}, "static|c10d", "PET_RDZV_BACKEND", kMeet, T::kMapped,
       "static and c10d both mean Lockstep's own rendezvous; etcd and others are refused, because no store is needed",
       "Accepted for compatibility: Lockstep has its own rendezvous.",
       SetBackend},
      {"--rdzv-id", {}, "ID", "PET_RDZV_ID", kMeet, T::kHonoured,
       "launchers of different ids never form one job; workers see it as TORCHELASTIC_RUN_ID",
       "Job id; launchers with another id are refused.",
       SETTER(NotEmpty(v, &d->flags.options.rdzv_id))},
      {"--rdzv-conf", {}, "K=V,...", "PET_RDZV_CONF", kMeet, T::kMapped,
       "join_timeout and timeout set --join-timeout, is_host=1 means node 0; others have no effect and a warning says "
       "so",
       "torchrun's rendezvous settings: join_timeout, timeout, is_host.",
       SetRendezvousConf},
      {"--join-timeout", {}, "DURATION", nullptr, kMeet, T::kOurs,
       "",
       "How long the rendezvous waits for all nodes. Default: 10m.",
       SETTER(PutDuration(v, &d->join_timeout))},
      {"--local-addr", {}, "ADDRESS", "PET_LOCAL_ADDR", kMeet, T::kHonoured,
       "the address this node tells the others",
       "Address at which the other nodes reach this one.",
       SETTER(NotEmpty(v, &d->flags.options.local_addr))},
      {"--port-range", {}, "FIRST-LAST", nullptr, kMeet, T::kOurs,
       "",
       "Ports from which the workers' MASTER_PORT is chosen.",
       SETTER(Put(ParsePortRange(v), &d->flags.options.port_range))},
      {"--agent-store", {}, "auto|on|off", nullptr, kMeet, T::kOurs,
       "",
       "Whether the launcher of node 0 hosts the workers' TCPStore on MASTER_PORT; otherwise rank 0 does. auto: for "
       "Python programs with torch 2.5 or newer. Default: auto.",
       SetAgentStore},
      {"--token-file", {}, "FILE", nullptr, kMeet, T::kOurs,
       "",
       "File with the job token that authenticates the launchers. Default: the variable LOCKSTEP_TOKEN.",
       SETTER(NotEmpty(v, &d->flags.options.token_file))},
      {"--token", {}, "VALUE", nullptr, nullptr, T::kOurs, "", "", RefuseToken},
      // The program
      {"--module", {"-m"}, nullptr, "PET_MODULE", kProgram, T::kHonoured,
       "`python -m`. Environment modules are loaded with --module-load",
       "Run the program as a Python module (python -m).",
       SWITCH(module)},
      {"--no-python", {}, nullptr, "PET_NO_PYTHON", kProgram, T::kHonoured,
       "the program is started directly, by path or from PATH",
       "Start the program directly. Executables that are no Python scripts need no flag.",
       SWITCH(no_python)},
      {"--run-path", {}, nullptr, "PET_RUN_PATH", kProgram, T::kMapped,
       "the script runs under runpy.run_path in a fresh interpreter per rank, instead of a fork of the launcher",
       "Run the script under runpy.run_path. Takes precedence over --no-python.",
       SWITCH(run_path)},
      {"--conda", {}, "NAME|PATH", nullptr, kProgram, T::kOurs,
       "",
       "Run inside this conda environment.",
       SETTER(NotEmpty(v, &d->flags.options.conda))},
      {"--venv", {}, "PATH", nullptr, kProgram, T::kOurs,
       "",
       "Run inside this Python virtual environment.",
       SETTER(NotEmpty(v, &d->flags.options.venv))},
      {"--module-load", {"--modules"}, "NAME[,NAME]", nullptr, kProgram, T::kOurs,
       "",
       "Load these environment modules first (repeatable). Not --module: that is torchrun's `python -m`.",
       AddModules},
      {"--env", {}, "NAME=VALUE", nullptr, kProgram, T::kOurs,
       "",
       "Set a variable for the workers (repeatable).",
       AddEnv},
      {"--workdir", {}, "DIR", nullptr, kProgram, T::kOurs,
       "",
       "Start the workers in this folder.",
       SETTER(NotEmpty(v, &d->flags.options.workdir))},
      {"--exec", {}, nullptr, nullptr, kProgram, T::kOurs,
       "",
       "With one command per rank (srun, mpirun): replace this process by the program, unsupervised.",
       SWITCH(exec)},
      {"--train-program", {}, nullptr, nullptr, kProgram, T::kOurs,
       "",
       "The program is a train program of Lockstep, whose exit codes mean what the launcher's mean. `lockstep train` "
       "says so; lockstep-train is known by its name.",
       SWITCH(train_program)},
      {"--role", {}, "NAME", "PET_ROLE", kProgram, T::kHonoured,
       "workers see it as ROLE_NAME",
       "Role of the workers. Default: default.",
       SETTER(NotEmpty(v, &d->flags.options.role))},
      // Supervision
      {"--max-restarts", {}, "N", "PET_MAX_RESTARTS", kSupervise, T::kMapped,
       "one budget of the whole job, where torchrun counts per node; a failure that repeats identically, before first "
       "progress or at the same step, is not restarted again",
       "Restarts of the whole job. Default: 0.",
       SETTER(PutCount(v, "a number of restarts", 0, 1000000, &d->flags.options.max_restarts))},
      {"--backoff", {}, "DURATION", nullptr, kSupervise, T::kOurs,
       "",
       "Wait before the first restart; doubles up to 30s. Default: 1s.",
       SETTER(PutDuration(v, &d->flags.options.backoff))},
      {"--grace", {}, "DURATION", nullptr, kSupervise, T::kOurs,
       "",
       "Time between SIGTERM and SIGKILL when ranks are stopped. Default: 15s.",
       SETTER(PutDuration(v, &d->grace))},
      {"--shutdown-timeout", {}, "SECONDS", "PET_SHUTDOWN_TIMEOUT", kSupervise, T::kMapped,
       "sets --grace; TORCH_ELASTIC_SHUTDOWN_TIMEOUT is read too",
       "torchrun's name of --grace, in seconds.",
       SetShutdownTimeout},
      {"--signals-to-handle", {}, "SIG,SIG", "PET_SIGNALS_TO_HANDLE", kSupervise, T::kHonoured,
       "only these are forwarded to the workers; without the flag every signal is",
       "Signals to forward. Default: any.",
       SETTER(Put(ParseSignals(v), &d->flags.options.signals))},
      {"--node-timeout", {}, "DURATION", nullptr, kSupervise, T::kOurs,
       "",
       "A node that does not answer for this long is lost. Default: 30s.",
       SETTER(PutDuration(v, &d->flags.options.node_timeout))},
      {"--preflight", {}, "[=standard|full]", nullptr, kSupervise, T::kOurs,
       "",
       "Examine every node and the network between them first (lockstep doctor preflight); when a check fails, nothing "
       "is "
       "started anywhere: exit code 3.",
       SetPreflight},
      {"--stall-timeout", {}, "DURATION|auto|off", nullptr, kSupervise, T::kOurs,
       "",
       "Stop the job (exit code 7, or a restart) when no rank made progress for this long, after saving the stacks of "
       "all ranks. auto only says so, with a limit learnt from the steps (at least 10m). Default: auto.",
       SetStallTimeout},
      {"--sample-every", {}, "DURATION|off", nullptr, kSupervise, T::kOurs,
       "",
       "How often each node measures its GPUs, ranks and links for lockstep watch (telemetry/). Default: 1s.",
       SetSampleEvery},
      // Logs and output
      {"--name", {}, "NAME", nullptr, kLogs, T::kOurs, "", "Name of the run and of its folder.", SetName},
      {"--log-dir", {}, "DIR", "PET_LOG_DIR", kLogs, T::kMapped,
       "the root of run directories; the logs of a run are in DIR/NAME/logs",
       "Root of run directories. Default: runs.",
       [](const std::string& v, Draft* d) -> Status {
         d->flags.options.log_dir = v;
         return Status::Ok();
       }},
      {"--redirects", {"-r"}, "STREAMS", "PET_REDIRECTS", kLogs, T::kHonoured,
       "streams kept off the console; log files are always written",
       "Streams kept off the console: 1 stdout, 2 stderr, 3 both, or per local rank: 0:1,1:3.",
       SETTER(Put(ParseStreams(v), &d->flags.options.redirects))},
      {"--tee", {"-t"}, "STREAMS", "PET_TEE", kLogs, T::kHonoured,
       "streams shown on the console although --redirects names them; log files are always written",
       "Streams shown on the console although redirected; same form.",
       SETTER(Put(ParseStreams(v), &d->flags.options.tee))},
      {"--local-ranks-filter", {}, "RANKS", "PET_LOCAL_RANKS_FILTER", kLogs, T::kHonoured,
       "only these local ranks are shown on the console",
       "Local ranks shown on the console: 0,1.",
       SETTER(v.empty() ? Status::Ok() : Put(ParseRankList(v, false), &d->flags.options.local_ranks_filter))},
      {"--console", {}, "all|none|RANKS", nullptr, kLogs, T::kOurs,
       "",
       "Ranks of the whole job shown on the console: 0,8-11.",
       SETTER(Put(ParseConsole(v), &d->flags.options.console))},
      {"--log-rotate", {}, "SIZE:KEEP", nullptr, kLogs, T::kOurs,
       "",
       "New log file past SIZE, KEEP old ones. Default: 100MiB:5.",
       SETTER(Put(ParseRotation(v), &d->flags.options.rotation))},
      {"--profile", {}, "A..B", nullptr, kLogs, T::kOurs,
       "",
       "Trace steps A to B of every rank with torch's profiler: a Chrome trace each and a summary, in profile/ of the "
       "run directory.",
       SETTER(Put(ParseSteps(v), &d->flags.options.profile))},
      {"--quiet", {"-q"}, nullptr, nullptr, kLogs, T::kOurs,
       "",
       "Only warnings, errors and the ranks' output.",
       SWITCH(quiet)},
      {"--json", {}, nullptr, nullptr, kLogs, T::kOurs,
       "",
       "One JSON document on stdout instead of text.",
       SWITCH(json)},
      {"--debug", {}, nullptr, nullptr, kLogs, T::kOurs,
       "",
       "NCCL_DEBUG, TORCH_DISTRIBUTED_DEBUG and C++ stack traces, into files beside the logs.",
       SWITCH(debug)},
      {"--duplicate-stdout-filters", {}, "WORDS", "PET_DUPLICATE_STDOUT_FILTERS", nullptr, T::kRefused,
       "no filtered copies: every rank has a log file of its own, to be searched with grep",
       "",
       RefuseDuplicates},
      {"--duplicate-stderr-filters", {}, "WORDS", "PET_DUPLICATE_STDERR_FILTERS", nullptr, T::kRefused,
       "no filtered copies: every rank has a log file of its own, to be searched with grep",
       "",
       RefuseDuplicates},
      {"--logs-specs", {}, "NAME", nullptr, nullptr, T::kRefused,
       "names a Python class of an entry point; the launcher runs no Python",
       "",
       [](const std::string& v, Draft* d) -> Status {
         (void)d;
         return Status(Code::kUsage, fmt::format("'{}' is a Python entry point and cannot be called", Printable(v)),
                       "drop it; --log-dir, --log-rotate, --redirects and --tee shape the logs");
       }},
      // The machine
      {"--gpus", {}, "LIST", nullptr, kMachine, T::kOurs,
       "",
       "GPUs the workers see: 0,1 or UUIDs.",
       SETTER(Put(ParseGpuList(v), &d->flags.options.gpus))},
      {"--bind", {}, "none|numa|cores", nullptr, kMachine, T::kOurs,
       "",
       "CPUs of each rank: the NUMA node of its GPU, or its own share of the cores (also: socket, complex).",
       SetBind},
      {"--numa-binding", {}, "MODE", nullptr, kMachine, T::kMapped,
       "node, socket, exclusive, core-complex become --bind numa, socket, cores, complex; numactl is not needed, and "
       "without GPUs the CPUs are shared out evenly",
       "torchrun's name of --bind: node, socket, exclusive, core-complex.",
       SetNumaBinding},
      {"--tune", {}, "off|report|apply", nullptr, kMachine, T::kOurs,
       "",
       "Settings of NCCL, Gloo and torch from this node's hardware: what is certain is set unless you set it. Default: "
       "apply.",
       SetTune},
      {"--virtual-local-rank", {}, nullptr, "PET_VIRTUAL_LOCAL_RANK", kMachine, T::kHonoured,
       "LOCAL_RANK=0 for all, CUDA_VISIBLE_DEVICES names the one GPU of the rank",
       "Each rank sees one GPU as device 0, and LOCAL_RANK=0.",
       SWITCH(virtual_local_rank)},
      // Accepted, without effect
      {"--monitor-interval", {}, "SECONDS", "PET_MONITOR_INTERVAL", kAccepted, T::kMapped,
       "no effect: nothing is polled, the end of a worker is seen at once",
       "Exits are seen at once.",
       [](const std::string& v, Draft* d) -> Status {
         (void)d;
         return ParsePositive(v).status();
       }},
      {"--start-method", {}, "METHOD", "PET_START_METHOD", kAccepted, T::kMapped,
       "no effect: every worker is a program of its own (torchrun ignores it for scripts, too)",
       "Every worker is a program of its own.",
       [](const std::string& v, Draft* d) -> Status {
         (void)d;
         return Choose(v, {"spawn", "fork", "forkserver"});
       }},
      {"--event-log-handler", {}, "NAME", "PET_EVENT_LOG_HANDLER", kAccepted, T::kMapped,
       "null and console are accepted: events always go to events.jsonl of the run; Python handlers are refused",
       "Events are in events.jsonl.",
       SetEventHandler},
      {"--use-env", {}, nullptr, nullptr, kAccepted, T::kOurs,
       "",
       "From torch.distributed.launch: the local rank is always in LOCAL_RANK.",
       [](const std::string& v, Draft* d) -> Status {
         (void)v;
         (void)d;
         return Status::Ok();
       }},
      // explain
      {"--env-file", {}, "FILE", nullptr, kOther, T::kOurs,
       "",
       "Read NAME=VALUE lines (or /proc/PID/environ) instead of the environment.",
       SETTER(NotEmpty(v, &d->flags.explain.env_file)),
       true},
      {"--assume-gpus", {}, "N", nullptr, kOther, T::kOurs,
       "",
       "Pretend this number of GPUs.",
       SETTER(PutCount(v, "a number of GPUs", 0, 4096, &d->flags.explain.assume_gpus)),
       true},
      {"--assume-cpus", {}, "N", nullptr, kOther, T::kOurs,
       "",
       "Pretend this number of CPUs.",
       SETTER(PutCount(v, "a number of CPUs", 1, 65536, &d->flags.explain.assume_cpus)),
       true},
      {"--assume-host", {}, "NAME", nullptr, kOther, T::kOurs,
       "",
       "Pretend this host name.",
       SETTER(NotEmpty(v, &d->flags.explain.assume_host)),
       true},
      // Other
      {"--dry-run", {}, nullptr, nullptr, kOther, T::kOurs,
       "",
       "Print what would happen and start nothing.",
       SWITCH(dry_run)},
      {"--help", {"-h"}, nullptr, nullptr, kOther, T::kHonoured,
       "prints this program's help",
       "Print this and exit.",
       nullptr},
      {"--version", {}, nullptr, nullptr, kOther, T::kOurs, "", "Print the version and exit.", nullptr},
      {"--dump-flags", {}, nullptr, nullptr, nullptr, T::kOurs, "", "", nullptr},
  };
  // clang-format on
}

}  // namespace

const std::vector<FlagRow>& RunFlagTable() {
  static const std::vector<FlagRow> table = MakeTable();
  return table;
}

const char* Name(Torchrun status) {
  switch (status) {
    case Torchrun::kHonoured:
      return "honoured";
    case Torchrun::kMapped:
      return "mapped";
    case Torchrun::kRefused:
      return "refused";
    case Torchrun::kOurs:
      return "ours";
  }
  return "";
}

}  // namespace lockstep::cli
