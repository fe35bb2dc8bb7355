// The one place that decides for the whole job: who belongs to it, when it starts, what its first failure was, whether
// it restarts, and with which code it ends. It lives in the launcher of node 0 (rank 0 on process level), on the loop's
// thread. Agents talk to it in messages (docs/formats/rendezvous.md): remote ones over TCP, the local one by direct
// calls.
//
// Life of a job:  rendezvous -> running -> stopping -> [backing off -> rendezvous] -> finished
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "diagnose/diagnosis.h"
#include "hang/hang.h"
#include "launch/admission.h"
#include "launch/connection.h"
#include "launch/messages.h"
#include "launch/participant.h"
#include "launch/rendezvous_server.h"
#include "launch/restart.h"
#include "launch/run_outcome.h"
#include "launch/stall.h"
#include "launch/transports.h"
#include "logs/log_excerpt.h"

namespace lockstep::launch {

struct CoordinatorOptions {
  std::string token;
  std::vector<std::string> hosts;  // by participant, where the platform tells; for naming the missing
  Millis join_timeout{600000};
  Millis node_timeout{30000};
  Millis suspect_after{5000};
  Millis refused_patience = kRefusedPatience;
  Millis grace{15000};
  Millis backoff{1000};
  int max_restarts = 0;
  int first_attempt = 0;
  bool engine = false;  // the ranks keep our exit codes: 2 and 3 are passed on and not tried again
  std::string run_name;
  std::string run_id;
  std::string master_addr;
  // The workers' MASTER_PORT in this attempt. With agent_store this launcher listens there when the call returns, with
  // an empty store; else rank 0 will.
  std::function<Result<int>()> pick_port;
  bool agent_store = false;
  StallLimit stall{StallLimit::Mode::kOff, Millis(0)};
  // Finds the cause of a failed attempt; called on a thread of its own. Empty: no diagnosis.
  std::function<Result<diagnose::Diagnosis>(const std::vector<diagnose::LogText>&, const diagnose::DiagnoseOptions&)>
      diagnose;
};

class Coordinator {
 public:
  struct Events {
    std::function<void(const std::string&)> say;
    std::function<void(const std::string&)> status;  // a line that replaces the last; empty: none
    std::function<void(const char* type, Json fields)> record;
    std::function<void(const RunOutcome&)> finished;  // once; every agent has been told
    // Keeps what an inspection found; returns the folder it lies in.
    std::function<std::string(const Json& hang, const std::vector<hang::ProcessStacks>& stacks)> keep;
    // What another node measured of itself.
    std::function<void(int node, const Json& sample)> sample;
  };

  Coordinator(Loop& loop, CoordinatorOptions options, Participant self, Events events);
  ~Coordinator();

  // Accepts other launchers on this listening socket. Not needed for a job of one participant.
  void Serve(UniqueFd listener);
  // The local agent joins. `deliver` gets its messages, from the loop.
  void Start(std::function<void(Json)> deliver);
  void FromLocalAgent(const Json& message);

  // Asks every node for the stacks of its ranks and answers with the verdict (docs/hang.md). Changes nothing.
  // keep: the stacks are kept in the run directory.
  void Inspect(bool pause, bool keep, std::function<void(const Json&)> reply);

  int world() const { return world_; }
  bool finished() const { return state_ == State::kFinished; }
  int nnodes() const { return nnodes_; }

 private:
  enum class State { kRendezvous, kRunning, kStopping, kBackingOff, kFinished };

  struct Slot {
    Participant participant;
    std::unique_ptr<Connection> connection;  // null: the local agent
    bool started = false;
    bool stopped = false;
    bool suspected = false;
    bool quiet = false;
    TimePoint last_heard = Now();
    int node = 0;       // assigned node rank
    int rank_base = 0;  // first global rank of its workers
    int local_rank = 0, local_world = 1;
    // Launchers on one host share its CPUs and GPUs: ranks of the earlier ones, and of all of them. 0: not known.
    int host_base = 0, host_ranks = 0;
  };

  Status Admit(const Participant& participant) const;
  void OnRefused(const std::string& who, const Participant* participant, const Status& why);
  void AddParticipant(Participant participant, std::unique_ptr<Connection> connection);
  void OnMessage(int index, const Json& message);
  void OnClosed(int index, const std::string& why);
  void OnStartFailed(Slot& slot, const message::StartFailed& failed);
  void OnStopRequest(Slot& slot, const message::StopRequest& request);
  void OnExit(Slot& slot, const RankEnd& end);
  void OnStopped(Slot& slot, const message::Stopped& stopped);
  void TellLeftRunning(const Slot& slot, const std::vector<message::LeftProcess>& left);
  void OnMalformed(int index, Slot& slot, const Status& why);
  void OnNetworkKnown(std::optional<TransportCensus::Verdict> verdict);

  void CheckComplete();
  Status AssignRanks();
  void Go();
  void BeginStop(int signal, const std::string& why);
  void ParticipantLost(int index, const std::string& why);
  void GiveUpOnUnreachable();
  void CheckStopped();
  void Finish(RunOutcome outcome);
  void WaitForGoodbyes(const RunOutcome& outcome, TimePoint until);

  // coordinator_decide.cc
  void Decide();

  // coordinator_diagnose.cc
  void WarmDiagnosis();
  void Examine(RunOutcome outcome, const std::string& signature, bool final);
  void Conclude(RunOutcome outcome, const std::string& signature, bool final,
                std::optional<diagnose::Diagnosis> diagnosis);
  diagnose::Diagnosis StallDiagnosis() const;
  diagnose::Diagnosis LostDiagnosis(const RunOutcome& outcome) const;
  std::optional<diagnose::Diagnosis> EngineDiagnosis(const RunOutcome& outcome) const;
  std::string NodeName(int node) const;

  // coordinator_stall.cc
  void CheckStall();
  void BeginInspection(bool pause);
  void OnStacks(int index, const message::Stacks& stacks);
  void CheckInspection();
  void FinishInspection();
  // What Python itself wrote when it was aborted may say more than could be seen from outside.
  void LookAgain();

  void Tick();
  void TellWaiting();
  std::string MissingText() const;
  void Send(Slot& slot, const Json& message);
  void Broadcast(const Json& message);

  Loop& loop_;
  CoordinatorOptions options_;
  Participant self_;
  Events events_;
  std::function<void(Json)> deliver_;
  std::unique_ptr<RendezvousServer> server_;
  std::map<int, Slot> slots_;
  Refusals refusals_;
  State state_ = State::kRendezvous;
  TimePoint rendezvous_start_ = Now();
  TimePoint last_tick_ = Now();
  TimePoint last_told_{};
  std::string last_missing_;
  int attempt_ = 0;
  int world_ = 0;
  int nnodes_ = 1;  // of the job, whoever is lost
  // The current attempt:
  std::vector<RankExit> exits_;               // in order of arrival
  std::map<int, logs::LogExcerpt> excerpts_;  // the end of each rank's log, by rank
  bool deciding_ = false;
  bool warmed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what was posted and outlives this
  int stop_signal_ = 0;                                         // a stop asked for from outside, 0: none
  std::string stop_why_;
  std::string lost_;       // the first participant lost in this attempt, unless the job was being stopped from outside
  std::string lost_host_;  // its machine
  std::string unreached_;  // participants that went away while it was
  Status start_failure_;
  bool progressed_ = false;
  bool ran_ = false;  // ranks were started, in any attempt of this launch
  TransportCensus transports_;
  TimePoint stop_sent_{};
  RestartPolicy policy_;
  // Stalls and stacks:
  struct Inspection {
    int64_t id = 0;
    bool running = false;
    bool for_stall = false;
    bool keep = false;
    TimePoint until{};
    std::set<int> missing;  // participants that have not answered
    std::vector<hang::ProcessStacks> found;
    std::map<int, std::string> collectives;
    std::string ras;
    std::vector<std::function<void(const Json&)>> replies;
  };
  struct Stall {
    std::string why;
    hang::HangVerdict verdict;
    std::vector<hang::ProcessStacks> stacks;
    hang::HangFacts facts;
    std::string folder;
  };
  StallJudge judge_;
  Inspection inspection_;
  std::optional<Stall> stall_;  // this attempt is being stopped for it
  bool stall_told_ = false;
  std::vector<std::unique_ptr<Connection>> graveyard_;
  Loop::TimerId timer_ = 0;
};

}  // namespace lockstep::launch
