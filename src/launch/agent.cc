#include "launch/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "base/digits.h"
#include "base/exit_codes.h"
#include "base/files.h"
#include "base/secrets.h"
#include "base/sockets.h"
#include "base/text.h"
#include "base/units.h"
#include "launch/connection.h"
#include "launch/fanout.h"
#include "launch/profile_hook.h"
#include "launch/worker_binding.h"
#include "launch/worker_env.h"
#include "logs/log_excerpt.h"
#include "record/metrics.h"

namespace lockstep::launch {
namespace {

constexpr Millis kHoldSignalEnds{150};
constexpr Millis kSecondPress{300};     // two SIGINT closer than this are one key press seen twice
constexpr Millis kFinishMargin{30000};  // beyond the grace, for node 0 to say how the job ended
constexpr Millis kLookAgain{200};
constexpr Millis kTuningPatience{5000};
constexpr size_t kExcerpt = 128 << 10;  // of one rank's log
constexpr size_t kMetricsEnd = 64 << 10;
constexpr size_t kExcerpts = 4 << 20;     // of all ranks of this node
constexpr double kUptimeIsProgress = 60;  // contract: failing every other sign, a minute of life

bool MayBeOurs(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

// The streams of a rank that the console shows: bit 1 stdout, bit 2 stderr.
int ShownStreams(const RunOptions& run, const WorkerIdentity& who) {
  const auto among = [](const std::vector<int>& list, int value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  switch (run.console.kind) {
    case ConsoleRanks::Kind::kAll:
      return 3;
    case ConsoleRanks::Kind::kNone:
      return 0;
    case ConsoleRanks::Kind::kListed:
      return among(run.console.ranks, who.rank) ? 3 : 0;
    case ConsoleRanks::Kind::kDefault:
      break;
  }
  if (run.local_ranks_filter && !among(*run.local_ranks_filter, who.local_rank)) return 0;
  const int redirected = run.redirects.For(who.local_rank);
  return (3 & ~redirected) | (run.tee ? run.tee->For(who.local_rank) : 0);
}

// The numbers of a list for CUDA_VISIBLE_DEVICES that this launcher wrote itself; empty: all.
std::vector<int> VisibleGpus(const std::string& list, int count) {
  std::vector<int> gpus;
  for (const std::string& item : Split(list, ',')) {
    const std::optional<int> gpu = ParseDigits(item);
    if (gpu && *gpu < count) gpus.push_back(*gpu);
  }
  if (!gpus.empty()) return gpus;
  gpus.resize(static_cast<size_t>(count));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

int64_t FileSize(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 ? static_cast<int64_t>(info.st_size) : 0;
}

// What torch's @record writes: {"message": {"message": ..., "extraInfo": {"py_callstack": ..., "timestamp":
// "1700000000"}}}, or {"message": "text", ...}.
void ReadErrorFile(const std::string& path, RankFindings* found) {
  auto text = ReadFile(path, 1 << 20);
  if (!text.ok()) return;
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("message")) {
    found->error_message = text->substr(0, 4096);
    return;
  }
  const Json& message = json["message"];
  if (message.is_string()) {
    found->error_message = message.get<std::string>();
  } else {
    found->error_message = GetString(message, "message");
    if (auto extra = message.find("extraInfo"); extra != message.end() && extra->is_object()) {
      found->error_detail = GetString(*extra, "py_callstack");
      found->error_hint = GetString(*extra, "hint");
      found->refused = GetBool(*extra, "refused");
      found->error_time = std::strtod(GetString(*extra, "timestamp").c_str(), nullptr);
    }
  }
}

}  // namespace

Agent::Agent(Loop& loop, logs::LogPump& pump, const LaunchPlan& plan, AgentOptions options,
             std::unique_ptr<record::RunDir>* run_dir, Events events)
    : loop_(loop),
      pump_(pump),
      plan_(plan),
      options_(std::move(options)),
      settings_(plan.settings),
      authority_(run_dir),
      events_(std::move(events)),
      supervisor_(loop, pump,
                  {[this](const Supervisor::Ended& ended) { OnEnded(ended); },
                   [this](Supervisor::Gone gone) { OnGone(std::move(gone)); },
                   [this](const std::vector<int>& ranks) {
                     if (ranks.empty()) return;
                     events_.say(fmt::format("{} {} did not end within {} (--grace): killed",
                                             ranks.size() == 1 ? "rank" : "ranks", diagnose::RankRanges(ranks),
                                             ExactDuration(grace_)));
                   }}),
      watch_(loop, pump,
             [this](const Json& message) {
               if (active_) events_.send(message);
             }),
      telemetry_(loop, pump, [this](const record::NodeSample& sample) {
        return active_ && events_.sample && events_.sample(sample);
      }) {}

Agent::~Agent() = default;

void Agent::OnMessage(const Json& message) {
  Receiver on(message, "node 0");
  on.Case<message::Go>([&](const message::Go& go) { Go(go); });
  on.Case<message::Stop>([&](const message::Stop& stop) {
    if (!active_) return;
    if (events_.silence && stop_signal_ == 0 && !std::exchange(stop_said_, true)) {
      events_.say(fmt::format("stopping the ranks of this node: {}", stop.why));
    }
    Stop(stop.signal, stop.grace);
  });
  on.Case<message::StacksQuestion>([&](const message::StacksQuestion& question) { watch_.Collect(question); });
  on.Case<message::Finish>([&](const message::Finish& finish) {
    if (finish.discard && own_ && plan_.options.log_dir.empty()) own_->Discard(attempt_);
    events_.finished(finish);
  });
  if (!on.status().ok()) OnCoordinatorLost(on.status().message());
}

void Agent::Go(message::Go go) {
  // Some platforms give node 0 itself a loopback name; the ranks here must reach it all the same.
  if (!options_.node0_host.empty() && IsLoopbackName(go.master_addr)) go.master_addr = options_.node0_host;
  active_ = true;
  attempt_ = go.attempt;
  node_ = go.node;
  ended_.clear();
  held_.clear();
  ranks_.clear();
  gone_held_ = told_progress_ = stop_said_ = false;
  world_ = go.world;
  const Status status = StartRanks(go);
  if (!status.ok()) {
    events_.send(ToJson(message::StartFailed{status.message(), status.hint()}));
    SendStopped({});
    return;
  }
  events_.send(ToJson(message::Started{}));
  WatchProgress();
  std::vector<RankWatch::Rank> watched;
  const auto pids = supervisor_.pids();
  for (size_t i = 0; i < pids.size() && pids.size() == ranks_.size(); ++i) {
    // The stem PyTorch appends the rank to; worker_env.cc sets it.
    watched.push_back({ranks_[i], pids[i], dir_->MetricsPath(ranks_[i]),
                       fmt::format("{}/nccl_trace_rank_{}", dir_->LogDir(attempt_, node_), ranks_[i])});
  }
  watch_.Start(attempt_, node_, std::move(watched), go.pulse);
  StartTelemetry(go);
  transports_.reset();
  if (settings_.collect_nccl || plan_.options.debug) {
    transports_ = std::make_unique<TransportWatch>(dir_->LogDir(attempt_, node_), ranks_, node_);
    WatchTransports();
  }
}

void Agent::StartTelemetry(const message::Go& go) {
  const Millis every = SampleInterval(plan_.options.sample_every, go.nnodes);
  const auto pids = supervisor_.pids();
  if (every <= Millis(0) || !events_.sample || pids.size() != ranks_.size()) return;
  const bool node_level = options_.level == place::Level::kNode;
  NodeSamplerOptions options;
  options.attempt = attempt_;
  options.node = node_;
  // Of several launchers of one node one looks at the machine.
  options.machine = node_level || go.local_rank == 0;
  options.gpus = !plan_.gpu_pci.empty();
  // Those of the ranks, where this launcher has got some of the host's.
  for (const int gpu : VisibleGpus(settings_.gpus, static_cast<int>(plan_.gpu_pci.size()))) {
    options.gpu_pci.push_back(plan_.gpu_pci[static_cast<size_t>(gpu)]);
  }
  if (go.nnodes > 1) {
    options.towards = options_.node0_host.empty() ? go.peer : options_.node0_host;
    for (const auto& [name, value] : settings_.tuned) {
      if (name == "NCCL_IB_HCA" && !value.starts_with('^'))
        options.links = Split(value.substr(value[0] == '=' ? 1 : 0), ',');
    }
  }
  std::vector<NodeSampler::Rank> ranks;
  for (size_t i = 0; i < pids.size(); ++i) {
    const int local = node_level ? static_cast<int>(i) : go.local_rank;
    ranks.push_back({ranks_[i], local, pids[i], dir_->MetricsPath(ranks_[i])});
  }
  telemetry_.Start(std::move(options), std::move(ranks), every);
}

Status Agent::StartRanks(const message::Go& go) {
  if (authority_ != nullptr) {
    dir_ = authority_->get();
  } else if (!own_) {
    auto dir = record::RunDir::Create(plan_.options.log_dir, go.run_name, /*authority=*/false, node_);
    if (!dir.ok()) return dir.status();
    own_ = std::make_unique<record::RunDir>(std::move(*dir));
    dir_ = own_.get();
  }
  LOCKSTEP_RETURN_IF_ERROR(dir_->MakeAttemptDirs(attempt_, node_));
  if (plan_.options.profile && !plan_.options.train_program) {
    LOCKSTEP_RETURN_IF_ERROR(WriteProfileHook(dir_->path()).Context("--profile"));
  }
  ApplyTuning(go);
  const bool node_level = options_.level == place::Level::kNode;
  const int host_ranks = std::max(go.local_world, go.host_ranks);
  ShareGpus(go.host_base, host_ranks);
  std::vector<RankBinding> bindings;
  if (plan_.options.bind != Bind::kNone) {
    auto topology = ReadTopology("/sys", AllowedCpus(), plan_.gpu_pci);
    if (!topology.ok()) return topology.status();
    auto planned = PlanBinding(plan_.options.bind, *topology, host_ranks);
    if (!planned.ok()) return planned.status();
    bindings = std::move(*planned);
  }
  // Where the launcher's input carries signals (see fanout.h) it is not for the ranks to read.
  const UniqueFd nothing(plan_.env.count(kControlVariable) != 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  // On a local disk: a run directory may lie on a file system without pipes, and PyTorch does not start without it.
  if (!plan_.gpu_pci.empty()) {
    auto pipes = TempDir::Create("lockstep-flight");
    if (pipes.ok()) pipes_ = std::make_unique<TempDir>(std::move(*pipes));
  }
  std::vector<RankPlan> plans;
  for (int i = 0; i < options_.nproc; ++i) {
    WorkerIdentity who;
    who.local_rank = node_level ? i : go.local_rank;
    who.rank = go.rank_base + i;
    who.world_size = go.world;
    who.local_world_size = go.local_world;
    who.node_rank = node_;
    who.nnodes = go.nnodes;
    who.master_addr = go.master_addr;
    who.master_port = go.master_port;
    who.agent_store = go.agent_store;
    who.attempt = attempt_;
    who.restart_count = go.restarts;
    who.run_dir = dir_->path();
    who.run_id = go.run_id;
    who.error_file = dir_->ErrorFilePath(attempt_, node_, who.rank);
    who.metrics_path = dir_->MetricsPath(who.rank);
    who.log_dir_of_node = dir_->LogDir(attempt_, node_);
    if (pipes_) who.flight_pipe = *pipes_ / "rank_";
    RankPlan plan;
    const auto slot = static_cast<size_t>(go.host_base + who.local_rank);
    int threads = DefaultThreads(plan_.cpus, host_ranks);
    if (slot < bindings.size()) {
      plan.cpus = bindings[slot].cpus;
      threads = bindings[slot].threads;
    }
    RankSettings settings = settings_;
    settings.threads = threads;
    auto env = WorkerEnvironment(who, plan_.env, plan_.options, plan_.program.env, settings);
    if (!env.ok()) return env.status();
    plan.node = node_;
    plan.rank = who.rank;
    plan.local_rank = who.local_rank;
    plan.attempt = attempt_;
    plan.argv = plan_.program.argv;
    plan.env = std::move(*env);
    plan.workdir = plan_.program.workdir;
    plan.stdin_fd = nothing.get();
    plan.log_path = dir_->LogPath(attempt_, node_, who.rank);
    const int shown = ShownStreams(plan_.options, who);
    plan.show_out = (shown & 1) != 0;
    plan.show_err = (shown & 2) != 0;
    plans.push_back(std::move(plan));
    ranks_.push_back(who.rank);
  }
  started_ = Now();
  for (int rank : ranks_) metrics_before_[rank] = FileSize(dir_->MetricsPath(rank));
  LOCKSTEP_RETURN_IF_ERROR(supervisor_.Start(plans));
  const auto pids = supervisor_.pids();
  for (size_t i = 0; i < pids.size() && i < ranks_.size(); ++i) {
    dir_->AppendEvent("rank_started", {{"attempt", attempt_}, {"node", node_}, {"rank", ranks_[i]}, {"pid", pids[i]}});
  }
  return {};
}

// Several launchers on one host: without a word from the user each takes GPUs of its own, in the order of nodes.
void Agent::ShareGpus(int host_base, int host_ranks) {
  if (!settings_.gpus.empty()) return;  // an attempt before this one settled it
  const auto gpus = static_cast<int>(plan_.gpu_pci.size());
  const bool told = RankEnvironment(plan_.env, plan_.program.env, plan_.options).contains("CUDA_VISIBLE_DEVICES");
  if (host_ranks <= options_.nproc || gpus == 0 || told) return;
  if (gpus < host_ranks) {
    if (attempt_ == 0) {
      events_.say(
          fmt::format("warning: the launchers on this host start {} ranks and there {}: ranks share a "
                      "GPU, which NCCL refuses (--nproc-per-node, --gpus)",
                      host_ranks, gpus == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", gpus)));
    }
    return;
  }
  std::vector<int> mine(static_cast<size_t>(options_.nproc));
  std::iota(mine.begin(), mine.end(), host_base);
  settings_.gpus = fmt::format("{}", fmt::join(mine, ","));
  events_.say(
      fmt::format("several launchers share this host: the ranks of this one see GPUs {} (--gpus decides "
                  "otherwise)",
                  settings_.gpus));
}

// Settled at the first attempt, and the same for every further one.
void Agent::ApplyTuning(const message::Go& go) {
  if (!options_.tuning || std::exchange(tuned_, true)) return;
  auto tuned = options_.tuning->Settle(go.run_id, go.nnodes, go.local_world, go.peer, kTuningPatience);
  if (!tuned) {
    events_.say(fmt::format("the machine could not be read in {} s (DNS?): going on without settings of our own",
                            kTuningPatience.count() / 1000));
    return;
  }
  settings_.tuned = std::move(tuned->apply);
  settings_.collect_nccl = tuned->collect_nccl;
  rdma_active_ = tuned->rdma_active;
  if (!plan_.options.quiet) {
    for (const std::string& line : tuned->lines) events_.say(line);
  }
  tuned->event["attempt"] = attempt_;
  tuned->event["node"] = node_;
  dir_->AppendEvent("tuned", std::move(tuned->event));
}

void Agent::Stop(int signal, Millis grace) {
  if (signal == SIGABRT) {
    // Wanted for what Python writes when it is aborted, not for a core as large as the machine's memory.
    const rlimit none{0, 0};
    for (pid_t pid : supervisor_.pids()) prlimit(pid, RLIMIT_CORE, &none, nullptr);
  }
  grace_ = grace;
  supervisor_.Stop(signal, grace);
}

void Agent::OnCoordinatorLost(const std::string& why) {
  lost_ = why;
  lost_first_ = stop_signal_ == 0;
  events_.say(fmt::format("lost node 0: {}{}", why, active_ ? "; stopping the ranks of this node" : ""));
  if (!active_) return FinishAlone();
  Stop(SIGTERM, plan_.options.grace);
}

// Without node 0's word on how the job ended.
void Agent::FinishAlone() {
  if (lost_first_) {
    return events_.finished({kExitNodeLost, "lost node 0: " + lost_,
                             "look at the network between this node and node 0, at that machine and at its log", false,
                             std::nullopt});
  }
  const std::string why = lost_.empty() ? "it does not answer" : lost_;
  events_.finished({ExitOfSignal(stop_signal_),
                    fmt::format("stopped by {}, without node 0: {}", SignalName(stop_signal_), why), "", false,
                    std::nullopt});
}

// Who asked for the end must get it, whatever has become of node 0.
void Agent::AwaitFinish() {
  const bool late = Now() - stop_time_ > plan_.options.grace + kFinishMargin;
  if (!active_ && (late || events_.silence() >= kUnreachable)) return FinishAlone();
  loop_.After(kLookAgain, [this] { AwaitFinish(); });
}

void Agent::SayStopping(int signal) {
  if (!active_) return events_.say(fmt::format("{}: ending the job; no rank runs now", SignalName(signal)));
  const std::string ranks = world_ == 1 ? "the rank"
                            : world_ == static_cast<int>(ranks_.size())
                                ? fmt::format("all {} ranks", world_)
                                : fmt::format("all {} ranks ({} of them here)", world_, ranks_.size());
  events_.say(fmt::format("{}: stopping {}, waiting up to {} (--grace) for the end; {} Ctrl-C kills at once",
                          SignalName(signal), ranks, ExactDuration(plan_.options.grace),
                          signal == SIGINT ? "a second" : "a"));
}

bool Agent::IsStopSignal(int signal) const {
  if (signal == SIGINT || signal == SIGTERM) return true;
  if (plan_.options.signals.empty()) return signal == SIGHUP || signal == SIGQUIT;
  return std::find(plan_.options.signals.begin(), plan_.options.signals.end(), signal) != plan_.options.signals.end();
}

void Agent::OnSignal(int signal) {
  if (!IsStopSignal(signal)) {
    if (dir_ != nullptr) dir_->AppendEvent("signal", {{"node", node_}, {"signal", signal}, {"forwarded", true}});
    return supervisor_.Forward(signal);
  }
  if (stop_signal_ != 0) {
    if (signal == SIGINT && Now() - stop_time_ > kSecondPress) {
      events_.say("second Ctrl-C: killing the ranks");
      events_.send(ToJson(message::StopRequest{signal, true}));
      Stop(SIGKILL, Millis(0));
    }
    return;
  }
  stop_signal_ = signal;
  stop_time_ = Now();
  SayStopping(signal);
  events_.send(ToJson(message::StopRequest{signal, false}));
  // Not only on node 0's word: it may be out of reach.
  if (active_) Stop(signal, plan_.options.grace);
  if (events_.silence) AwaitFinish();
}

void Agent::OnEnded(const Supervisor::Ended& ended) {
  ended_.push_back(ended);
  watch_.Ended(ended.rank);
  telemetry_.Ended(ended.rank);
  if (!held_.empty() || (!ended.after_stop && stop_signal_ == 0 && MayBeOurs(ended.status.signal))) {
    held_.push_back(ended);
    if (held_.size() == 1) loop_.After(kHoldSignalEnds, [this] { FlushHeld(); });
    return;
  }
  SendExit(ended, ended.after_stop || stop_signal_ != 0);
}

void Agent::FlushHeld() {
  for (const auto& ended : held_) SendExit(ended, ended.after_stop || stop_signal_ != 0);
  held_.clear();
  if (std::exchange(gone_held_, false)) SendStopped(gone_);
}

void Agent::SendExit(const Supervisor::Ended& ended, bool after_stop) {
  RankEnd exit;
  exit.rank = ended.rank;
  exit.local_rank = ended.local_rank;
  exit.pid = ended.pid;
  exit.code = ended.status.code;
  exit.signal = ended.status.signal;
  exit.core_dumped = ended.status.core_dumped;
  exit.uptime = ended.uptime;
  exit.after_stop = after_stop;
  exit.killed = ended.killed;
  events_.send(ToJson(message::Exit{exit}));
}

void Agent::OnGone(Supervisor::Gone gone) {
  gone_ = std::move(gone);
  if (!held_.empty()) {
    gone_held_ = true;
    return;
  }
  SendStopped(gone_);
}

message::RankDetail Agent::Details(const Supervisor::Ended& ended) const {
  message::RankDetail detail;
  detail.rank = ended.rank;
  RankFindings& found = detail.findings;
  found.tail = pump_.Tail(ended.rank);
  found.log = dir_->LogPath(attempt_, node_, ended.rank);
  record::MetricFollower metrics(dir_->MetricsPath(ended.rank));
  metrics.SkipToLast(kMetricsEnd);
  metrics.Read([&](const record::MetricLine& line) {
    if (line.attempt == attempt_ && line.step) found.step = static_cast<int64_t>(*line.step);
  });
  ReadErrorFile(dir_->ErrorFilePath(attempt_, node_, ended.rank), &found);
  if (ended.status.signal == SIGKILL && !ended.after_stop) found.evidence = oom_.Evidence(ended.pid);
  return detail;
}

void Agent::SendStopped(const Supervisor::Gone& gone) {
  active_ = false;
  watch_.Stop();
  telemetry_.Stop();
  pipes_.reset();
  pump_.Detach(attempt_, Now() + Millis(1000));
  TellProgress();  // its last lines may have been its first
  RecordProgress();
  if (transports_) TellTransports(transports_->Rest());
  message::Stopped stopped;
  for (const auto& ended : ended_) {
    if (!ended.status.success()) stopped.details.push_back(Details(ended));
  }
  // The ends of the logs, for the diagnosis: those that failed by themselves first and with more of theirs.
  size_t room = kExcerpts;
  for (const bool by_itself : {true, false}) {
    for (message::RankDetail& detail : stopped.details) {
      const bool told = std::any_of(ended_.begin(), ended_.end(),
                                    [&](const auto& ended) { return ended.rank == detail.rank && ended.after_stop; });
      const size_t bytes = std::min(room, by_itself ? kExcerpt : kExcerpt / 4);
      if (told == by_itself || bytes < 1024) continue;
      detail.excerpt = logs::ReadExcerpt(dir_->LogPath(attempt_, node_, detail.rank), bytes);
      room -= std::min(room, detail.excerpt.text.size() + detail.excerpt.earlier.size());
    }
  }
  // They go into reports and events.
  std::vector<std::string> secrets = SecretValues(RankEnvironment(plan_.env, plan_.program.env, plan_.options));
  MaskArguments(plan_.program.argv, {}, &secrets);
  for (message::RankDetail& detail : stopped.details) {
    RankFindings& found = detail.findings;
    for (std::string* text : {&found.error_message, &found.error_detail, &found.error_hint, &found.tail,
                              &detail.excerpt.text, &detail.excerpt.earlier}) {
      *text = MaskSecrets(std::move(*text), secrets);
    }
  }
  for (pid_t pid : gone.stuck) {
    stopped.stuck += fmt::format("{}pid {} does not die (state {}): {}", stopped.stuck.empty() ? "" : "; ", pid,
                                 ProcessState(pid), ProcessCommand(pid));
  }
  if (!lost_.empty()) return FinishAlone();
  for (const auto& process : gone.left) stopped.left.push_back({process.rank, process.pid, process.command});
  events_.send(ToJson(stopped));
}

void Agent::TellProgress() {
  if (told_progress_ || dir_ == nullptr) return;
  for (int rank : ranks_) {
    // A run that continues finds the lines of its earlier attempts: only what was added since counts.
    const bool metrics = FileSize(dir_->MetricsPath(rank)) > metrics_before_[rank];
    if (metrics || pump_.Progress(rank).any() || SecondsSince(started_) > kUptimeIsProgress) {
      told_progress_ = true;
      events_.send(ToJson(message::Progress{rank}));
      return;
    }
  }
}

// For readers that come later: a log alone does not say how fast its steps were.
void Agent::RecordProgress() {
  for (int rank : ranks_) {
    const record::ProgressState progress = pump_.Progress(rank);
    const std::optional<double> seconds = progress.measured ? progress.measured : progress.seconds_per_step;
    if (!progress.step || !seconds || dir_ == nullptr) continue;
    dir_->AppendEvent("rank_progress", {{"attempt", attempt_},
                                        {"node", node_},
                                        {"rank", rank},
                                        {"step", *progress.step},
                                        {"seconds_per_step", *seconds}});
  }
}

void Agent::WatchProgress() {
  loop_.After(Millis(1000), [this, attempt = attempt_] {
    if (!active_ || attempt != attempt_) return;
    TellProgress();
    if (!told_progress_) WatchProgress();
  });
}

void Agent::TellTransports(const std::vector<diagnose::Transport>& transports) {
  for (const diagnose::Transport& transport : transports) {
    for (const std::string& name : transport.hcas) telemetry_.AddLink(name);
    for (const std::string& name : transport.interfaces) telemetry_.AddLink(name);
  }
  if (!transports.empty()) events_.send(ToJson(CommMessage(transports, node_, rdma_active_)));
}

void Agent::WatchTransports() {
  loop_.After(Millis(1000), [this, attempt = attempt_] {
    if (!active_ || attempt != attempt_ || !transports_) return;
    const auto found = transports_->Poll();
    TellTransports(found);
    if (found.empty()) WatchTransports();
  });
}

}  // namespace lockstep::launch
