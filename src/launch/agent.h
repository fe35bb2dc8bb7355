// A node's part of a job: it starts the ranks the coordinator tells it to, tells it about every end, and stops them on
// its word. One per launcher, on the loop's thread; it speaks to the coordinator in messages and does not know whether
// that sits in the same process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/loop.h"
#include "launch/messages.h"
#include "launch/oom.h"
#include "launch/plan.h"
#include "launch/rank_watch.h"
#include "launch/run_outcome.h"
#include "launch/supervisor.h"
#include "launch/telemetry.h"
#include "launch/transports.h"
#include "launch/tuning.h"
#include "logs/log_pump.h"
#include "record/run_dir.h"

namespace lockstep::launch {

struct AgentOptions {
  place::Level level = place::Level::kNode;
  int nproc = 1;
  std::string who;                 // "node 1 (pid 4711 on gpu-7)"
  std::shared_ptr<Tuning> tuning;  // null: --tune off
  std::string node0_host;          // how this machine reaches node 0; empty where this is node 0
};

class Agent {
 public:
  struct Events {
    std::function<void(const Json&)> send;  // to the coordinator
    std::function<void(const std::string&)> say;
    std::function<void(const message::Finish&)> finished;
    // How long node 0's machine has acknowledged nothing; empty where the coordinator is in this process.
    std::function<Millis()> silence;
    // What this node measured of itself; false: not taken now. Empty: nobody wants it.
    std::function<bool(const record::NodeSample&)> sample;
  };

  // `plan` outlives the agent. `run_dir` is the authority's where this is node 0, else null: the agent opens its own
  // when it knows the name.
  Agent(Loop& loop, logs::LogPump& pump, const LaunchPlan& plan, AgentOptions options,
        std::unique_ptr<record::RunDir>* run_dir, Events events);
  ~Agent();

  void OnMessage(const Json& message);
  // The connection to the coordinator is gone: ends the local ranks, then the launcher.
  void OnCoordinatorLost(const std::string& why);
  // A signal for the launcher. Stop signals stop the whole job, others are passed to the local ranks.
  void OnSignal(int signal);
  bool IsStopSignal(int signal) const;
  void OnChild() { supervisor_.Reap(); }
  bool running() const { return active_; }

 private:
  void Go(message::Go go);
  Status StartRanks(const message::Go& go);
  void ApplyTuning(const message::Go& go);
  void ShareGpus(int host_base, int host_ranks);
  void Stop(int signal, Millis grace);
  void OnEnded(const Supervisor::Ended& ended);
  void OnGone(Supervisor::Gone gone);
  void SayStopping(int signal);
  void AwaitFinish();
  void FinishAlone();
  void FlushHeld();
  void SendExit(const Supervisor::Ended& ended, bool after_stop);
  void SendStopped(const Supervisor::Gone& gone);
  message::RankDetail Details(const Supervisor::Ended& ended) const;
  void TellProgress();
  void RecordProgress();
  void WatchProgress();
  void WatchTransports();
  void StartTelemetry(const message::Go& go);
  void TellTransports(const std::vector<diagnose::Transport>& transports);

  Loop& loop_;
  logs::LogPump& pump_;
  const LaunchPlan& plan_;
  const AgentOptions options_;
  RankSettings settings_;  // of the ranks of this node, but for their threads
  std::unique_ptr<record::RunDir>* authority_;
  std::unique_ptr<record::RunDir> own_;
  Events events_;
  OomWatch oom_;
  Supervisor supervisor_;
  record::RunDir* dir_ = nullptr;
  bool active_ = false;  // between go and stopped
  int attempt_ = 0, node_ = 0, world_ = 1;
  TimePoint started_{};
  std::map<int, int64_t> metrics_before_;  // size of each rank's metric file when the attempt started
  std::vector<int> ranks_;
  std::vector<Supervisor::Ended> ended_;
  // Ends by a signal that may have been meant for the whole launcher wait here a moment for ours to arrive.
  std::vector<Supervisor::Ended> held_;
  bool gone_held_ = false;
  bool stop_said_ = false;
  Millis grace_{0};  // of the stop under way
  Supervisor::Gone gone_;
  bool told_progress_ = false;
  int stop_signal_ = 0;
  TimePoint stop_time_{};
  std::string lost_;         // why the coordinator is lost
  bool lost_first_ = false;  // before anybody asked for the end
  RankWatch watch_;
  Telemetry telemetry_;
  std::unique_ptr<TempDir> pipes_;  // where ranks are asked for dumps of their flight recorders
  bool tuned_ = false, rdma_active_ = false;
  std::unique_ptr<TransportWatch> transports_;  // while NCCL writes into files of ours
};

}  // namespace lockstep::launch
