// Starts the ranks of this node, sees each one end, stops them, and leaves nothing behind. Lives on the loop's thread,
// in a process that is a subreaper, so that even a double-forked grandchild in a session of its own becomes its child.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/loop.h"
#include "base/process.h"
#include "base/status.h"
#include "logs/log_pump.h"

namespace lockstep::launch {

// One rank to start.
struct RankPlan {
  int node = 0, rank = 0, local_rank = 0, attempt = 0;
  std::vector<std::string> argv;
  std::vector<std::string> env;
  std::vector<int> cpus;
  std::string workdir;
  std::string log_path;
  int stdin_fd = -1;  // -1: the launcher's
  bool show_out = true, show_err = true;
};

class Supervisor {
 public:
  struct Ended {
    int rank = 0, local_rank = 0;
    pid_t pid = 0;
    ExitStatus status;
    double uptime = 0;
    bool after_stop = false;
    bool killed = false;  // had not ended when the grace was over
  };
  struct LeftRunning {  // a process that outlived its rank
    int rank = -1;      // -1: not known
    pid_t pid = 0;
    std::string command;
  };
  struct Gone {
    std::vector<pid_t> stuck;       // processes that do not die
    std::vector<LeftRunning> left;  // ended by us although their ranks had succeeded
  };
  struct Events {
    std::function<void(const Ended&)> ended;  // one rank
    std::function<void(Gone)> gone;           // all ranks and everything they left running
    // The grace is over and these ranks have not ended: they are being killed. May be empty.
    std::function<void(const std::vector<int>& ranks)> overdue;
  };

  Supervisor(Loop& loop, logs::LogPump& pump, Events events);
  ~Supervisor();

  // All or none: if one rank cannot be started, those already started are killed.
  Status Start(const std::vector<RankPlan>& plans);

  // Asks every rank to end with `signal`, kills what is left after `grace`. A further call with a stronger wish (a
  // shorter grace) shortens the wait.
  void Stop(int signal, Millis grace);
  // Passes a signal on without meaning to stop.
  void Forward(int signal);
  // Call on SIGCHLD: where the kernel has no pidfd this is how ends are seen; everywhere it reaps adopted orphans.
  void Reap();

  bool running() const { return alive_ > 0; }
  std::vector<pid_t> pids() const;

 private:
  struct Rank {
    RankPlan plan;
    Process process;
    TimePoint started;
    bool alive = false;
    bool overdue = false;
    bool succeeded = false;
  };

  void OnExit(size_t i);
  void OnGraceOver();
  void KillAll();
  void Finish();
  std::vector<LeftRunning> LeftBySuccess();

  Loop& loop_;
  logs::LogPump& pump_;
  Events events_;
  std::vector<Rank> ranks_;
  int alive_ = 0;
  bool stopping_ = false;
  TimePoint kill_at_{};
  Loop::TimerId kill_timer_ = 0;
};

}  // namespace lockstep::launch
