#include "launch/coordinator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>

#include "base/exit_codes.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

constexpr Millis kStopMargin{20000};  // beyond the grace period, for an agent to report that its ranks are gone

}  // namespace

Coordinator::Coordinator(Loop& loop, CoordinatorOptions options, Participant self, Events events)
    : loop_(loop),
      options_(std::move(options)),
      self_(std::move(self)),
      events_(std::move(events)),
      attempt_(options_.first_attempt),
      policy_(options_.max_restarts, options_.backoff),
      judge_(options_.stall) {
  self_.index = 0;
}

Coordinator::~Coordinator() {
  *alive_ = false;
  if (timer_ != 0) loop_.Cancel(timer_);
}

void Coordinator::Serve(UniqueFd listener) {
  RendezvousServer::Events events;
  events.admit = [this](const Participant& participant) { return Admit(participant); };
  events.joined = [this](Participant participant, std::unique_ptr<Connection> connection) {
    AddParticipant(std::move(participant), std::move(connection));
  };
  events.refused = [this](const std::string& who, const Participant* participant, const Status& why) {
    OnRefused(who, participant, why);
  };
  server_ = std::make_unique<RendezvousServer>(loop_, options_.token, self_.version, std::move(events));
  server_->Serve(std::move(listener));
}

void Coordinator::Start(std::function<void(Json)> deliver) {
  deliver_ = std::move(deliver);
  Slot slot;
  slot.participant = self_;
  slots_[0] = std::move(slot);
  rendezvous_start_ = last_tick_ = Now();
  if (self_.count > 1) Tick();
  CheckComplete();
}

void Coordinator::FromLocalAgent(const Json& message) { OnMessage(0, message); }

// ---- running ------------------------------------------------------------------------------------------------------

void Coordinator::Go() {
  int port = 0;
  if (options_.pick_port) {
    auto picked = options_.pick_port();
    if (!picked.ok()) {
      RunOutcome outcome(End::kRendezvous, picked.status().message(), picked.status().hint());
      outcome.exit_code = ExitCode(picked.status());
      return Finish(std::move(outcome));
    }
    port = *picked;
  }
  state_ = State::kRunning;
  exits_.clear();
  excerpts_.clear();
  lost_.clear();
  unreached_.clear();
  stop_why_.clear();
  start_failure_ = Status();
  progressed_ = false;
  stall_.reset();
  stall_told_ = false;
  judge_.Begin(Now());
  transports_.Begin(world_, nnodes());
  events_.record("attempt_started", {{"attempt", attempt_},
                                     {"restarts", policy_.used()},
                                     {"world_size", world_},
                                     {"nnodes", nnodes()},
                                     {"master_addr", options_.master_addr},
                                     {"master_port", port},
                                     {"agent_store", options_.agent_store}});
  // Node 0 may know itself as loopback only; where another node came from tells it the way out.
  const auto other =
      std::find_if(slots_.begin(), slots_.end(), [](const auto& entry) { return entry.second.connection != nullptr; });
  const std::string peer = other == slots_.end() ? "" : other->second.connection->peer();
  for (auto& [index, slot] : slots_) {
    slot.started = slot.stopped = false;
    message::Go go;
    go.attempt = attempt_;
    go.restarts = policy_.used();
    go.max_restarts = policy_.budget();
    go.run_name = options_.run_name;
    go.run_id = options_.run_id;
    go.node = slot.node;
    go.nnodes = nnodes();
    go.rank_base = slot.rank_base;
    go.local_rank = slot.local_rank;
    go.local_world = slot.local_world;
    go.host_base = slot.host_base;
    go.host_ranks = slot.host_ranks;
    go.world = world_;
    go.master_addr = options_.master_addr;
    go.master_port = port;
    go.agent_store = options_.agent_store;
    go.peer = slot.connection ? "" : peer;
    go.pulse = StallJudge::PulseInterval(options_.stall);
    Send(slot, ToJson(go));
  }
  if (timer_ == 0) Tick();
}

void Coordinator::OnNetworkKnown(std::optional<TransportCensus::Verdict> verdict) {
  if (!verdict) return;
  verdict->event["attempt"] = attempt_;
  events_.record("comm_ready", std::move(verdict->event));
  if (!verdict->warning.empty()) events_.say("warning: " + verdict->warning);
}

void Coordinator::OnMessage(int index, const Json& message) {
  auto it = slots_.find(index);
  if (it == slots_.end()) return;
  Slot& slot = it->second;
  slot.last_heard = Now();
  if (state_ == State::kFinished) return;
  Receiver on(message, slot.connection ? fmt::format("{} at {}", slot.participant.Who(), slot.connection->peer())
                                       : slot.participant.Who());
  on.Case<message::Started>([&](const auto&) { slot.started = ran_ = true; });
  on.Case<message::Progress>([&](const message::Progress& progress) {
    if (std::exchange(progressed_, true)) return;
    events_.record("first_progress", {{"attempt", attempt_}, {"rank", progress.rank}});
  });
  on.Case<message::Comm>([&](const message::Comm& comm) { OnNetworkKnown(transports_.Add(comm)); });
  on.Case<message::Pulse>([&](const message::Pulse& pulse) {
    if (pulse.attempt == attempt_) judge_.Feed(pulse.ranks, Now());
  });
  on.Case<message::Sample>([&](const message::Sample& sample) {
    if (events_.sample) events_.sample(slot.node, sample.sample);
  });
  on.Case<message::Stacks>([&](const message::Stacks& stacks) { OnStacks(index, stacks); });
  on.Case<message::Exit>([&](const message::Exit& exit) { OnExit(slot, exit.end); });
  on.Case<message::Stopped>([&](const message::Stopped& stopped) { OnStopped(slot, stopped); });
  on.Case<message::StartFailed>([&](const message::StartFailed& failed) { OnStartFailed(slot, failed); });
  on.Case<message::StopRequest>([&](const message::StopRequest& request) { OnStopRequest(slot, request); });
  if (!on.status().ok()) OnMalformed(index, slot, on.status());
}

// A launcher whose words cannot be read is of no use to the job, like one that has left.
void Coordinator::OnMalformed(int index, Slot& slot, const Status& why) {
  if (!slot.connection) {
    events_.say(why.ToString());
    return BeginStop(SIGTERM, "a message of this launcher could not be read");
  }
  slot.connection->Close();
  OnClosed(index, why.message());
}

void Coordinator::OnStartFailed(Slot& slot, const message::StartFailed& failed) {
  if (start_failure_.ok()) {
    start_failure_ = Status(Code::kEnvironment, fmt::format("{}: {}", slot.participant.Who(), failed.why), failed.hint);
  }
  BeginStop(SIGTERM, "a node could not start its ranks");
}

void Coordinator::OnStopRequest(Slot& slot, const message::StopRequest& request) {
  if (stop_signal_ == 0) {
    stop_signal_ = request.signal;
    stop_why_ = fmt::format("{} at {}", SignalName(request.signal), slot.participant.Who());
    events_.record("signal", {{"signal", request.signal}, {"by", slot.participant.Who()}});
    if (slot.connection) events_.say(fmt::format("{}: stopping the job", stop_why_));
  }
  if (request.now) options_.grace = Millis(0);
  if (state_ == State::kRunning || state_ == State::kStopping) {
    BeginStop(request.signal, stop_why_);
    return GiveUpOnUnreachable();
  }
  Finish(RunOutcome::StoppedBy(stop_signal_, "stopped by " + stop_why_));
}

void Coordinator::OnExit(Slot& slot, const RankEnd& end) {
  RankExit exit;
  static_cast<RankEnd&>(exit) = end;
  ran_ = true;
  exit.node = slot.node;
  exit.host = slot.participant.host;
  exit.time = UnixSeconds();
  exit.told = exit.after_stop;
  exit.after_stop = exit.told || state_ == State::kStopping;
  events_.record("rank_exited",
                 {{"attempt", attempt_},
                  {"rank", exit.rank},
                  {"node", exit.node},
                  {"host", exit.host},
                  {"pid", exit.pid},
                  {exit.signal != 0 ? "signal" : "exit_code", exit.signal != 0 ? exit.signal : exit.code},
                  {"after_stop", exit.after_stop}});
  const bool failed = !exit.success();
  if (failed && state_ == State::kRunning) {
    // The end of a single rank is told by the summary that follows; what our engine refuses, too.
    const bool refused = options_.engine && exit.RefusedByEngine();
    if (exit.code != kExitResume && world_ > 1 && !refused) {
      events_.say(fmt::format("rank {} (node {}, {}, pid {}) ended with {} after {:.1f} s; stopping the other {}",
                              exit.rank, exit.node, exit.host, exit.pid, exit.Describe(), exit.uptime,
                              world_ == 2 ? "rank" : "ranks"));
    }
    exits_.push_back(std::move(exit));
    return BeginStop(SIGTERM, "a rank failed");
  }
  exits_.push_back(std::move(exit));
}

// A node's ranks are all gone. It brings what only it knows: last log lines, error files, the kernel's word.
void Coordinator::OnStopped(Slot& slot, const message::Stopped& stopped) {
  for (const message::RankDetail& detail : stopped.details) {
    if (!detail.excerpt.text.empty()) excerpts_[detail.rank] = detail.excerpt;
    for (RankExit& exit : exits_) {
      if (exit.rank == detail.rank) static_cast<RankFindings&>(exit) = detail.findings;
    }
  }
  if (!stopped.stuck.empty()) events_.say(fmt::format("warning: {}: {}", slot.participant.Who(), stopped.stuck));
  TellLeftRunning(slot, stopped.left);
  slot.stopped = true;
  CheckStopped();
}

// Processes that outlived ranks that succeeded: their owner may have counted on them.
void Coordinator::TellLeftRunning(const Slot& slot, const std::vector<message::LeftProcess>& left) {
  if (left.empty()) return;
  Json rows = Json::array();
  std::map<int, std::vector<std::string>> by_rank;
  for (const message::LeftProcess& process : left) {
    by_rank[process.rank].push_back(fmt::format("{} (pid {})", Printable(process.command, 120), process.pid));
    rows.push_back({{"rank", process.rank}, {"pid", process.pid}, {"command", process.command}});
  }
  for (auto& [rank, processes] : by_rank) {
    const size_t count = processes.size();
    if (count > 4) processes.resize(4);
    events_.say(fmt::format("{} succeeded and left {} running, which {} ended: {}{}",
                            rank < 0 ? fmt::format("a rank of node {}", slot.node) : fmt::format("rank {}", rank),
                            Count(static_cast<int64_t>(count), "process", "processes"), count == 1 ? "was" : "were",
                            fmt::join(processes, ", "), count > 4 ? fmt::format(" and {} more", count - 4) : ""));
  }
  events_.record("left_running", {{"attempt", attempt_}, {"node", slot.node}, {"processes", std::move(rows)}});
}

void Coordinator::BeginStop(int signal, const std::string& why) {
  if (state_ == State::kRunning) {
    state_ = State::kStopping;
    stop_sent_ = Now();
    events_.record("stopping", {{"attempt", attempt_}, {"why", why}, {"signal", signal}});
    if (stop_signal_ == 0) WarmDiagnosis();
  } else if (state_ != State::kStopping) {
    return;
  }
  Broadcast(ToJson(message::Stop{signal, options_.grace, why}));
  CheckStopped();
}

void Coordinator::OnClosed(int index, const std::string& why) {
  loop_.Post([this, index, why] { ParticipantLost(index, why); });
}

void Coordinator::ParticipantLost(int index, const std::string& why) {
  auto it = slots_.find(index);
  if (it == slots_.end()) return;
  const std::string who = it->second.participant.Who();
  const std::string host = it->second.participant.host;
  const bool over = it->second.stopped && state_ != State::kRendezvous;
  if (it->second.connection) {
    it->second.connection->Close();
    graveyard_.push_back(std::move(it->second.connection));
  }
  slots_.erase(it);
  refusals_.Forget(host);  // whoever was refused because the node was taken may join now
  if (state_ == State::kFinished) return;
  events_.record("node_lost",
                 {{"attempt", attempt_}, {ParticipantWord(self_.level), index}, {"who", who}, {"why", why}});
  if (state_ == State::kRendezvous || state_ == State::kBackingOff) {
    events_.say(fmt::format("{} left before the start: {}", who, why));
    return;
  }
  if (stop_signal_ != 0) {
    // Asked to stop, the job is stopped; that a node could not be told, or left first, is no failure of it.
    if (!over) {
      unreached_ += fmt::format("{}{}: {}", unreached_.empty() ? "" : "; ", who, why);
      events_.say(fmt::format("not waiting for {}: {}; its launcher ends its ranks by itself", who, why));
    }
  } else if (!over || lost_.empty()) {
    if (lost_.empty()) {
      lost_ = fmt::format("{}: {}", who, why);
      lost_host_ = host;
    }
    events_.say(fmt::format("lost {}: {}", who, why));
  }
  if (state_ == State::kRunning) return BeginStop(SIGTERM, "a node was lost");
  CheckStopped();
}

// Whoever asks for the end of the job gets it, also with a dead network: what cannot be reached cannot be waited for.
void Coordinator::GiveUpOnUnreachable() {
  if (stop_signal_ == 0 || state_ != State::kStopping) return;
  std::vector<std::pair<int, Millis>> silent;
  for (auto& [index, slot] : slots_) {
    if (slot.stopped || !slot.connection) continue;
    const Millis silence = slot.connection->Silence();
    if (silence >= kUnreachable) silent.emplace_back(index, silence);
  }
  for (const auto& [index, silence] : silent) {
    ParticipantLost(index, fmt::format("its machine has acknowledged nothing for {:.0f} s", silence.count() / 1000.0));
  }
}

void Coordinator::CheckStopped() {
  if ((state_ != State::kStopping && state_ != State::kRunning) || deciding_) return;
  for (const auto& [index, slot] : slots_) {
    if (!slot.stopped) return;
  }
  Decide();
}

// ---- ending -------------------------------------------------------------------------------------------------------

void Coordinator::Finish(RunOutcome outcome) {
  if (state_ == State::kFinished) return;
  state_ = State::kFinished;
  events_.status("");
  outcome.attempts = attempt_ - options_.first_attempt + 1;
  outcome.attempt = attempt_;
  if (world_ > 0) {
    events_.record("attempt_ended",
                   {{"attempt", attempt_}, {"exit_code", outcome.exit_code}, {"reason", outcome.reason}});
  }
  outcome.restarts = policy_.used();
  for (const RankExit& exit : exits_) {
    if (exit.killed) outcome.killed.push_back(exit.rank);
  }
  std::sort(outcome.killed.begin(), outcome.killed.end());
  const bool refused = outcome.end == End::kEnvironment && start_failure_.ok() && attempt_ == options_.first_attempt;
  outcome.started = ran_ && !refused;
  message::Finish finish{outcome.exit_code, outcome.reason, outcome.hint, !outcome.started, std::nullopt};
  if (outcome.end == End::kFailed && !outcome.failures.empty()) finish.failure = outcome.failures.front();
  bool remote = false;
  for (auto& [index, slot] : slots_) {
    if (!slot.connection) continue;
    if (slot.connection->Silence() >= kUnreachable) {
      slot.connection->Close();
      continue;
    }
    remote = true;
    Send(slot, ToJson(finish));
    slot.connection->CloseAfterFlush(kGoodbye);
  }
  if (!remote) return events_.finished(outcome);
  WaitForGoodbyes(outcome, Now() + kGoodbye);
}

// Agents close when they have read their last message; wait for that, but not for long.
void Coordinator::WaitForGoodbyes(const RunOutcome& outcome, TimePoint until) {
  const bool open = std::any_of(slots_.begin(), slots_.end(), [](const auto& entry) {
    return entry.second.connection && entry.second.connection->open();
  });
  if (!open || Now() >= until) return events_.finished(outcome);
  loop_.After(Millis(2), [this, outcome, until] { WaitForGoodbyes(outcome, until); });
}

// ---- watching -----------------------------------------------------------------------------------------------------

void Coordinator::Tick() {
  timer_ = loop_.After(kTick, [this] { Tick(); });
  const TimePoint now = Now();
  const auto late = std::chrono::duration_cast<Millis>(now - last_tick_) - kTick;
  const Millis own_delay = late > Millis(500) ? late : Millis(0);
  last_tick_ = now;
  graveyard_.clear();
  if (server_) server_->Expire();
  if (state_ == State::kFinished) return;
  std::vector<std::pair<int, std::string>> lost;
  for (auto& [index, slot] : slots_) {
    if (!slot.connection) continue;
    const Millis silence = slot.connection->Silence(own_delay);
    slot.connection->Ping();
    if (silence >= options_.node_timeout) {
      lost.emplace_back(index, fmt::format("its machine has acknowledged nothing for {:.0f} s (--node-timeout)",
                                           silence.count() / 1000.0));
    } else if (silence >= options_.suspect_after && !slot.suspected) {
      slot.suspected = true;
      events_.say(fmt::format("suspecting {}: its machine has acknowledged nothing for {:.0f} s; lost at {:.0f} s",
                              slot.participant.Who(), silence.count() / 1000.0,
                              options_.node_timeout.count() / 1000.0));
      events_.record("node_suspected", {{"attempt", attempt_},
                                        {ParticipantWord(self_.level), index},
                                        {"who", slot.participant.Who()},
                                        {"why", fmt::format("silent for {:.1f} s", silence.count() / 1000.0)}});
    } else if (silence < kTick && slot.suspected) {
      slot.suspected = false;
      events_.say(fmt::format("{} is back", slot.participant.Who()));
    }
    if (own_delay > Millis(0)) slot.last_heard += own_delay;
    const bool quiet = silence < kTick && now - slot.last_heard > 2 * options_.suspect_after;
    if (quiet != slot.quiet) {
      slot.quiet = quiet;
      events_.say(quiet ? fmt::format("{}: its machine answers but the launcher has not run for {:.0f} s (starved or "
                                      "stopped); not counted as lost",
                                      slot.participant.Who(),
                                      std::chrono::duration<double>(now - slot.last_heard).count())
                        : fmt::format("{} runs again", slot.participant.Who()));
    }
  }
  for (const auto& [index, why] : lost) ParticipantLost(index, why);
  GiveUpOnUnreachable();
  if (state_ == State::kRendezvous) {
    const int missing = self_.count - static_cast<int>(slots_.size());
    if (refusals_.Hopeless(missing, options_.refused_patience)) {
      const Status end = refusals_.End(self_, slots_.size(), MissingText());
      return Finish(RunOutcome(End::kRendezvous, end.message(), end.hint()));
    }
    if (now - rendezvous_start_ >= options_.join_timeout) {
      RunOutcome outcome(
          End::kRendezvous,
          fmt::format("{} of {} {}s joined within {:.0f} s; missing: {}", slots_.size(), self_.count,
                      ParticipantWord(self_.level), options_.join_timeout.count() / 1000.0, MissingText()),
          "check that the command runs there, that it reaches this machine, and that both use the same "
          "master address and port");
      if (!lost_.empty()) outcome.exit_code = kExitNodeLost;
      return Finish(std::move(outcome));
    }
    if (now - rendezvous_start_ >= kPromptRendezvous) TellWaiting();
  }
  CheckStall();
  CheckInspection();
  if (state_ == State::kStopping && now - stop_sent_ > options_.grace + kStopMargin) {
    std::vector<int> silent;
    for (const auto& [index, slot] : slots_) {
      if (!slot.stopped && slot.connection) silent.push_back(index);
    }
    for (int index : silent) ParticipantLost(index, "it did not report the end of its ranks");
  }
}

void Coordinator::Send(Slot& slot, const Json& message) {
  if (slot.connection) {
    slot.connection->Send(message);
  } else {
    loop_.Post([this, message] { deliver_(message); });
  }
}

void Coordinator::Broadcast(const Json& message) {
  for (auto& [index, slot] : slots_) {
    if (!slot.stopped) Send(slot, message);
  }
}

}  // namespace lockstep::launch
