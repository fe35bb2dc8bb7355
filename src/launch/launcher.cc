#include "launch/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "base/exit_codes.h"
#include "base/files.h"
#include "base/process.h"
#include "base/secrets.h"
#include "base/sockets.h"
#include "base/text.h"
#include "base/version.h"
#include "launch/admission.h"
#include "launch/agent.h"
#include "launch/coordinator.h"
#include "launch/error_file.h"
#include "launch/fanout.h"
#include "launch/guardian.h"
#include "launch/inspect.h"
#include "launch/ports.h"
#include "launch/profile_hook.h"
#include "launch/rendezvous_client.h"
#include "launch/report.h"
#include "launch/store_server.h"
#include "launch/telemetry.h"
#include "record/trace.h"

namespace lockstep::launch {
namespace {

constexpr Millis kLockHeartbeat{10000};
constexpr int kPortTries = 16;

// With hundreds of participants or ranks the usual soft limit of 1,024 descriptors is too low; the hard limit is ours
// to use. A rank has a connection to the store for each of its process groups and for PyTorch's watchdogs.
void RaiseFileLimit(int participants, int store_clients) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(participants) * 2 + static_cast<rlim_t>(store_clients) * 16 + 512;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(limit.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &limit);
}

class Launcher {
 public:
  Launcher(LaunchPlan plan, UniqueFd guardian)
      : plan_(std::move(plan)), guardian_(std::move(guardian)), self_(DescribeParticipant(plan_)) {}

  int Run();

 private:
  Status Prepare();
  Status Host();
  Result<int> PickPort();
  Result<int> OpenStore();
  void KeepLock();
  void FollowCoordinator();
  void WatchSignals();
  void WatchControl();
  void OnSignal(int signal);
  void SayProfile();
  void OnFinished(const RunOutcome& outcome);
  void KeepSample(record::NodeSample sample);
  std::string KeepHang(const Json& hang, const std::vector<hang::ProcessStacks>& stacks);
  void Exit(int code) {
    exit_code_ = code;
    loop_.Quit();
  }
  void Say(const std::string& text) {
    if (pump_) {
      pump_->Say("lockstep: " + text, /*err=*/true);
    } else {
      fmt::print(stderr, "lockstep: {}\n", text);
    }
  }
  int Fail(const Status& status) {
    if (run_dir_ && !KeepsRecord()) run_dir_->Discard(run_dir_->first_attempt());
    fmt::print(stderr, "lockstep: {}\n", status.ToString());
    if (plan_.options.json) Print(RefusalJson(status));
    TellParent(status.message(), nullptr);
    return ExitCode(status);
  }
  static void Print(const Json& document) {
    fmt::print("{}\n", document.dump(2, ' ', false, Json::error_handler_t::replace));
    fflush(stdout);
  }
  // A launch that never started leaves nothing, unless its user named a place for records.
  bool KeepsRecord() const { return !plan_.options.log_dir.empty(); }
  void TellParent(const std::string& reason, const RankExit* first);
  std::string FirstLine() const;
  std::string NameLine() const;
  std::string worker_master() const;

  const LaunchPlan plan_;
  UniqueFd guardian_;
  Participant self_;
  Loop loop_;
  UniqueFd signals_;
  UniqueFd listener_;
  std::unique_ptr<logs::LogPump> pump_;
  std::unique_ptr<record::RunDir> run_dir_;
  std::unique_ptr<PortPicker> ports_;
  std::unique_ptr<StoreServer> store_;  // of this attempt
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<SampleStore> samples_;  // of all nodes; on node 0
  std::unique_ptr<InspectServer> inspect_;
  std::unique_ptr<RendezvousClient> client_;
  std::unique_ptr<Agent> agent_;
  bool hosts_ = false;
  double started_ = UnixSeconds();
  TimePoint start_ = Now();
  int exit_code_ = kExitEnvironment;
};

// Where whoever started this launcher looks for what went wrong.
void Launcher::TellParent(const std::string& reason, const RankExit* first) {
  const auto path = plan_.env.find("TORCHELASTIC_ERROR_FILE");
  if (path == plan_.env.end()) return;
  const Status written = WriteErrorFile(path->second, ErrorFileJson(reason, first, UnixSeconds()));
  if (!written.ok()) Say(fmt::format("warning: TORCHELASTIC_ERROR_FILE: {}", written.message()));
}

// MASTER_ADDR of the workers: loopback for one node; for several what the platform or the user said.
std::string Launcher::worker_master() const {
  if (plan_.placement.master_addr && !plan_.placement.master_addr->empty()) return *plan_.placement.master_addr;
  if (self_.count == 1) return "127.0.0.1";
  return !plan_.options.local_addr.empty() ? plan_.options.local_addr : LauncherHost(plan_);
}

std::string Launcher::FirstLine() const {
  const place::Placement& p = plan_.placement;
  if (self_.level == place::Level::kProcess) {
    return fmt::format("rank {} of {} on {} ({}, one launcher per rank)", self_.index, self_.count, self_.host,
                       p.platform);
  }
  return fmt::format("{} on this node, {}{} (nproc-per-node: {})", Count(self_.nproc, "rank"),
                     Count(self_.count, "node"), p.platform == "local" ? "" : ", " + p.platform, p.nproc_source);
}

// What the commands that look at a run have to be given.
std::string Launcher::NameLine() const {
  const std::string root = plan_.options.log_dir.empty() ? record::kDefaultRoot : plan_.options.log_dir;
  const std::string where = plan_.options.log_dir.empty() ? "" : " --log-dir " + ShellQuote(root);
  return fmt::format("run {} in {}/{} (lockstep watch {}{})", run_dir_->name(), root, run_dir_->name(),
                     ShellQuote(run_dir_->name()), where);
}

Status Launcher::Prepare() {
  ClaimNodeZeroByAddress(plan_, &self_, &listener_);
  hosts_ = self_.index == 0;
  const int world = std::max(plan_.placement.world_size.value_or(1), self_.nproc * self_.count);
  RaiseFileLimit(self_.count + 4 * self_.nproc, hosts_ && plan_.store.on ? world : 0);
  logs::LogPumpOptions pump_options = logs::LogPumpOptions::ForThisProcess(plan_.options.rotation);
  if (plan_.options.json) {  // stdout is for the one document
    pump_options.console_out_fd = 2;
    pump_options.terminal_out = pump_options.terminal_err;
    pump_options.colour_out = pump_options.colour_err;
  }
  if (hosts_) {
    const bool explicit_port = plan_.options.place.master_port.has_value();
    if ((self_.count > 1 || (explicit_port && *plan_.options.place.master_port > 0)) && !listener_) {
      auto listener = ListenForLaunchers(plan_, /*loopback_only=*/self_.count == 1);
      if (!listener.ok()) return listener.status();
      listener_ = std::move(*listener);
    }
    const std::string name =
        plan_.options.name.empty() ? record::DefaultName(NameStem(plan_.options)) : plan_.options.name;
    auto dir = record::RunDir::Create(plan_.options.log_dir, name, /*authority=*/true, 0);
    if (!dir.ok()) return dir.status();
    run_dir_ = std::make_unique<record::RunDir>(std::move(*dir));
  }
  auto pump = logs::LogPump::Start(pump_options);
  if (!pump.ok()) return pump.status();
  pump_ = std::move(*pump);
  return {};
}

Status Launcher::Host() {
  const place::Placement& p = plan_.placement;
  for (const std::string& notice : run_dir_->notices()) Say(notice);
  const int world = self_.level == place::Level::kNode ? p.world_size.value_or(self_.nproc * self_.count) : self_.count;
  const char* user = getenv("USER");
  Json identity = {
      {"program", MaskArguments(plan_.program.argv, SecretValues(RankEnvironment(plan_.env, {}, plan_.options)))},
      {"id", self_.job.empty() ? run_dir_->name() : self_.job},
      {"world_size", world},
      {"user", user != nullptr ? user : std::to_string(getuid())},
      {"platform", p.platform},
      {"level", place::Name(self_.level)},
      {"nnodes", self_.level == place::Level::kNode ? self_.count : p.nnodes.value_or(-1)},
      {"nproc_per_node", self_.nproc},
      {"host", self_.host},
      {"pid", self_.pid},
      {"workdir", plan_.options.workdir.empty() ? std::filesystem::current_path().string() : plan_.options.workdir},
      {"max_restarts", plan_.options.max_restarts},
      {"version", self_.version},
      {"commit", VersionJson("")["commit"]}};
  LOCKSTEP_RETURN_IF_ERROR(run_dir_->WriteRunJson(identity));
  LOCKSTEP_RETURN_IF_ERROR(run_dir_->WriteConfig(EffectiveConfig(plan_)));
  run_dir_->AppendEvent("run_started", {{"name", run_dir_->name()},
                                        {"nnodes", identity["nnodes"]},
                                        {"world_size", world},
                                        {"pid", self_.pid},
                                        {"host", self_.host}});
  if (listener_ && self_.count > 1 && plan_.token.empty()) {
    const std::string host = LauncherHost(plan_);
    auto addresses = Resolve(host, LauncherPort(plan_));
    const bool loopback = addresses.ok() && !addresses->empty() && (*addresses)[0].IsLoopback();
    if (!loopback) {
      Say(
          fmt::format("warning: port {} is open to the network without a job token: anybody who reaches it can join "
                      "(--token-file or LOCKSTEP_TOKEN)",
                      LauncherPort(plan_)));
    }
  }
  ports_ = std::make_unique<PortPicker>(plan_.options.port_range);
  CoordinatorOptions options;
  options.token = plan_.token;
  options.hosts = p.hosts;
  options.join_timeout = plan_.options.join_timeout;
  options.node_timeout = plan_.options.node_timeout;
  options.grace = plan_.options.grace;
  options.backoff = plan_.options.backoff;
  options.max_restarts = plan_.options.max_restarts;
  options.stall = plan_.options.stall;
  options.diagnose = diagnose::DiagnoseText;
  options.engine = plan_.options.train_program;
  options.first_attempt = run_dir_->first_attempt();
  options.run_name = run_dir_->name();
  options.run_id = self_.job.empty() ? run_dir_->name() : self_.job;
  options.master_addr = worker_master();
  options.agent_store = plan_.store.on;
  options.pick_port = [this] { return plan_.store.on ? OpenStore() : PickPort(); };
  coordinator_ = std::make_unique<Coordinator>(
      loop_, options, self_,
      Coordinator::Events{
          [this](const std::string& text) { Say(text); },
          [this](const std::string& text) { pump_->SetStatus(text.empty() ? "" : "lockstep: " + text); },
          [this](const char* type, Json fields) { run_dir_->AppendEvent(type, std::move(fields)); },
          [this](const RunOutcome& outcome) { OnFinished(outcome); },
          [this](const Json& hang, const auto& stacks) { return KeepHang(hang, stacks); },
          [this](int node, const Json& json) {
            std::optional<record::NodeSample> sample = record::ReadSample(json);
            if (!sample) return;
            sample->node = node;  // whatever it says
            KeepSample(std::move(*sample));
          }});
  inspect_ = std::make_unique<InspectServer>(loop_, [this](const Json& question, InspectServer::Reply reply) {
    Receiver on(question, "a program on this machine");
    on.Case<message::Inspect>(
        [&](const message::Inspect& asked) { coordinator_->Inspect(asked.pause, asked.keep, reply); });
    if (!on.status().ok()) reply({{"type", "hang"}, {"error", on.status().message()}});
  });
  if (listener_) coordinator_->Serve(std::move(listener_));
  coordinator_->Start([this](const Json& message) { agent_->OnMessage(message); });
  KeepLock();
  return {};
}

// The workers' MASTER_PORT: on process level the platform's, else one that is free now.
Result<int> Launcher::PickPort() {
  if (self_.level == place::Level::kProcess) return plan_.placement.master_port.value_or(kDefaultPort);
  return ports_->Next(listener_ || self_.count > 1 ? LauncherPort(plan_) : 0);
}

// The store of the attempt before served its last rank when that attempt ended.
Result<int> Launcher::OpenStore() {
  store_.reset();
  const std::string master = worker_master();
  const bool loopback = self_.count == 1 && (master == "127.0.0.1" || master == "localhost");
  for (int tries = 1;; ++tries) {
    const Result<int> port = PickPort();
    if (!port.ok()) return port;
    Result<UniqueFd> listener = Listen(*port, loopback);
    if (listener.ok()) {
      store_ =
          std::make_unique<StoreServer>(loop_, std::move(*listener), [this](const std::string& text) { Say(text); });
      return port;
    }
    if (self_.level == place::Level::kNode && tries < kPortTries) continue;  // taken since it was looked at
    const Status why = ProbePort(*port);
    return why.ok() ? listener.status() : why;
  }
}

void Launcher::KeepLock() {
  loop_.After(kLockHeartbeat, [this] {
    (void)run_dir_->TouchLock();
    KeepLock();
  });
}

void Launcher::FollowCoordinator() {
  RendezvousClientOptions options;
  options.host = LauncherHost(plan_);
  options.port = LauncherPort(plan_);
  options.token = plan_.token;
  options.join_timeout = plan_.options.join_timeout;
  options.node_timeout = plan_.options.node_timeout;
  client_ = std::make_unique<RendezvousClient>(
      loop_, options, self_,
      RendezvousClient::Events{
          [this](const Json& message) {
            Receiver on(message, "node 0");
            on.Case<message::Waiting>(
                [&](const message::Waiting& waiting) { pump_->SetStatus("lockstep: " + waiting.Text()); });
            if (!on.status().ok()) return agent_->OnCoordinatorLost(on.status().message());
            if (TypeOf(message) == message::Go::kType) pump_->SetStatus("");
            if (!on.taken()) agent_->OnMessage(message);
          },
          [this](const Status& status) {
            Say(status.ToString());
            TellParent(status.message(), nullptr);
            Exit(ExitCode(status));
          },
          [this](const std::string& why) { agent_->OnCoordinatorLost(why); },
          [this](const std::string& text) { Say(text); },
          [this](const std::string& text) { pump_->SetStatus(text.empty() ? "" : "lockstep: " + text); }});
  client_->Start();
}

void Launcher::WatchSignals() {
  sigset_t set;
  sigprocmask(SIG_BLOCK, nullptr, &set);  // the guardian blocked what we handle
  signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  loop_.Watch(signals_.get(), EPOLLIN, [this](uint32_t) {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        agent_->OnChild();
      } else if (signal == SIGPIPE || signal == SIGWINCH) {
        continue;
      } else {
        OnSignal(signal);
      }
    }
  });
  WatchControl();
  loop_.Watch(guardian_.get(), EPOLLIN, [this](uint32_t) {
    loop_.Unwatch(guardian_.get());
    Say("the guardian process is gone (killed?); stopping the job");
    OnSignal(SIGTERM);
  });
}

void Launcher::OnSignal(int signal) {
  // Before it has joined, a launcher belongs to no job: it ends by itself.
  const bool alone = client_ && !client_->joined();
  if (!alone || !agent_->IsStopSignal(signal)) return agent_->OnSignal(signal);
  Say(fmt::format("stopped by {} before joining", SignalName(signal)));
  Exit(ExitOfSignal(signal));
}

void Launcher::WatchControl() {
  auto control = plan_.env.find(kControlVariable);
  if (control == plan_.env.end() || control->second != "stdin" || !hosts_) return;
  loop_.Watch(0, EPOLLIN, [this](uint32_t) {
    char signal = 0;
    if (read(0, &signal, 1) == 1) return OnSignal(signal);
    loop_.Unwatch(0);
    Say("the command that started this job is gone; stopping the job");
    OnSignal(SIGTERM);
  });
}

void Launcher::KeepSample(record::NodeSample sample) {
  if (coordinator_->finished()) return;
  if (!samples_) samples_ = std::make_unique<SampleStore>(run_dir_->path(), coordinator_->nnodes());
  samples_->Take(std::move(sample));
}

std::string Launcher::KeepHang(const Json& hang, const std::vector<hang::ProcessStacks>& stacks) {
  const time_t now = static_cast<time_t>(UnixSeconds());
  tm local{};
  char stamp[32] = {};
  if (localtime_r(&now, &local) != nullptr) strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &local);
  std::string folder = fmt::format("{}/hang-{}", run_dir_->path(), stamp);
  if (!MakeDirs(folder).ok()) return "";
  Json whole = hang;
  whole["stacks"] = Json::array();
  for (const auto& process : stacks) {
    whole["stacks"].push_back(hang::ToJson(process));
    (void)WriteFileAtomic(fmt::format("{}/rank-{}.txt", folder, process.rank), hang::StacksText(process), 0644,
                          Durability::kProcess);
  }
  (void)WriteFileAtomic(folder + "/hang.json", whole.dump(1, ' ', false, Json::error_handler_t::replace) + "\n", 0644,
                        Durability::kProcess);
  if (const std::string ras = GetString(hang, "ras"); !ras.empty()) {
    (void)WriteFileAtomic(folder + "/ras.txt", ras, 0644, Durability::kProcess);
  }
  return folder;
}

// What the traces of this node's ranks say; of a train program that has done so itself.
void Launcher::SayProfile() {
  const std::string folder = run_dir_->path() + "/profile";
  if (plan_.options.train_program) return;
  const Result<std::string> text = record::SummariseProfile(folder);
  (void)RemoveAll(ProfileHookDir(run_dir_->path())).ok();
  if (!text.ok()) return Say(fmt::format("warning: --profile: {}", text.status().ToString()));
  Say(fmt::format("profile: {}/summary.txt\n{}", folder, *text));
}

void Launcher::OnFinished(const RunOutcome& outcome) {
  ReportContext context;
  context.run_name = run_dir_->name();
  context.run_dir = run_dir_->path();
  context.world = coordinator_->world();
  context.nnodes = coordinator_->nnodes();
  context.started = started_;
  context.duration = SecondsSince(start_);
  const logs::LogStats stats = pump_->Stats();
  if (stats.bytes_lost > 0) {
    context.warnings.push_back(fmt::format("{} bytes of log were lost: {} ({})", stats.bytes_lost,
                                           ErrnoText(stats.lost_errno), stats.lost_path));
  }
  if (stats.console_lines_skipped > 0) {
    context.warnings.push_back(
        fmt::format("the console was slow: {} not shown, but logged",
                    Count(static_cast<int64_t>(stats.console_lines_skipped), "line was", "lines were")));
  }
  samples_.reset();  // written, or given up, before the end is told
  const bool kept = outcome.started || KeepsRecord() || !run_dir_->Discard(run_dir_->first_attempt());
  Json report = ReportJson(outcome, context);
  if (kept) {
    run_dir_->AppendEvent("run_ended", {{"exit_code", outcome.exit_code}, {"reason", outcome.reason}});
    const Status written = run_dir_->WriteReport(report);
    if (!written.ok()) context.warnings.push_back("the report could not be written: " + written.message());
  }
  for (const std::string& warning : context.warnings) Say("warning: " + warning);
  Say(ReportText(outcome, context));
  if (outcome.exit_code != 0 && outcome.end != End::kSaved) {
    const bool by_rank = outcome.end == End::kFailed && !outcome.failures.empty();
    TellParent(outcome.reason, by_rank ? &outcome.failures.front() : nullptr);
  }
  if (kept && plan_.options.profile) SayProfile();
  if (kept) Say(fmt::format("run directory: {}", run_dir_->path()));
  if (plan_.options.json) {
    report["run_dir"] = kept ? Json(run_dir_->path()) : Json();
    report["name"] = kept ? Json(run_dir_->name()) : Json();
    pump_->FlushConsole(Now() + Millis(2000));
    Print(report);
  }
  Exit(outcome.exit_code);
}

int Launcher::Run() {
  const Status prepared = Prepare();
  if (!prepared.ok()) return Fail(prepared);
  if (!plan_.options.quiet) Say(FirstLine());
  if (!plan_.options.quiet && run_dir_) Say(NameLine());
  for (const std::string& warning : plan_.placement.warnings) Say("warning: " + warning);
  AgentOptions agent_options;
  agent_options.level = self_.level;
  if (!hosts_) agent_options.node0_host = LauncherHost(plan_);
  agent_options.nproc = self_.nproc;
  agent_options.who = self_.Who();
  agent_options.tuning = Tuning::Start(plan_);
  agent_ = std::make_unique<Agent>(
      loop_, *pump_, plan_, agent_options, hosts_ ? &run_dir_ : nullptr,
      Agent::Events{[this](const Json& message) {
                      if (coordinator_) {
                        loop_.Post([this, message] { coordinator_->FromLocalAgent(message); });
                      } else {
                        client_->Send(message);
                      }
                    },
                    [this](const std::string& text) { Say(text); },
                    [this](const message::Finish& end) {
                      if (client_) client_->Done();
                      Say(fmt::format("the job ended with exit code {}: {}{}", end.exit_code, end.reason,
                                      end.hint.empty() ? "" : "\n  do: " + end.hint));
                      if (end.exit_code != 0 && end.exit_code != kExitResume) {
                        TellParent(end.reason, end.failure ? &*end.failure : nullptr);
                      }
                      Exit(end.exit_code);
                    },
                    hosts_ ? std::function<Millis()>() : [this] { return client_->Silence(); },
                    [this](const record::NodeSample& sample) {
                      if (coordinator_) {
                        KeepSample(sample);
                        return true;
                      }
                      std::string line;
                      record::AppendSampleLine(sample, &line);
                      return client_->TrySend(ToJson(message::Sample{Json::parse(line, nullptr, false)}));
                    }});
  WatchSignals();
  if (hosts_) {
    const Status hosted = Host();
    if (!hosted.ok()) {
      pump_->FlushConsole(Now() + Millis(1000));
      return Fail(hosted);
    }
  } else {
    FollowCoordinator();
  }
  loop_.Run();
  pump_->FlushConsole(Now() + Millis(2000));
  if (run_dir_) run_dir_->Release();
  return exit_code_;
}

}  // namespace

int Launch(LaunchPlan plan) {
  const auto grace = plan.options.grace;
  return RunGuarded(grace, [&](UniqueFd guardian) {
    // Heap-allocated and never freed: threads blocked on a stuck console or resolver must not hold up the exit.
    auto* launcher = new Launcher(std::move(plan), std::move(guardian));
    return launcher->Run();
  });
}

}  // namespace lockstep::launch
