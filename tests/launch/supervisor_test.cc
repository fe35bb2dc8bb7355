// Real processes under a real loop and a real log pump. Each test runs in a forked child that is a subreaper of its
// own, because a supervisor ends every process below it.
#include "launch/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>

#include "base/files.h"

namespace lockstep::launch {
namespace {

#define REQUIRE(condition)                                                  \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
      _exit(1);                                                             \
    }                                                                       \
  } while (0)

class Bench {
 public:
  Bench() : dir_(*TempDir::Create()) {
    logs::LogPumpOptions options;
    options.console_out_fd = options.console_err_fd = null_.get();
    auto pump = logs::LogPump::Start(options);
    REQUIRE(pump.ok());
    pump_ = std::move(*pump);
    supervisor_ = std::make_unique<Supervisor>(
        loop_, *pump_,
        Supervisor::Events{[this](const Supervisor::Ended& ended) { ended_.push_back(ended); },
                           [this](Supervisor::Gone gone) {
                             stuck_ = std::move(gone.stuck);
                             left_ = std::move(gone.left);
                             gone_ = true;
                             loop_.Quit();
                           },
                           [this](const std::vector<int>& ranks) { overdue_ = ranks; }});
  }

  RankPlan Rank(int rank, const std::string& script) {
    RankPlan plan;
    plan.rank = plan.local_rank = rank;
    plan.argv = {"/bin/sh", "-c", script};
    plan.env = {"PATH=/usr/bin:/bin", "MARK=" + Mark(rank), "RANK=" + std::to_string(rank)};
    plan.log_path = dir_ / ("rank-" + std::to_string(rank) + ".log");
    return plan;
  }
  std::string Mark(int rank) { return dir_ / ("mark-" + std::to_string(rank)); }
  void AwaitMark(int rank) {
    const TimePoint deadline = Now() + Millis(20000);
    while (access(Mark(rank).c_str(), F_OK) != 0) {
      REQUIRE(Now() < deadline);
      loop_.RunOnce(Millis(5));
    }
  }
  void RunToTheEnd() {
    loop_.After(Millis(30000), [] { _exit(99); });
    loop_.Run();
    REQUIRE(gone_);
  }

  TempDir dir_;
  UniqueFd null_{open("/dev/null", O_WRONLY | O_CLOEXEC)};
  Loop loop_;
  std::unique_ptr<logs::LogPump> pump_;
  std::unique_ptr<Supervisor> supervisor_;
  std::vector<Supervisor::Ended> ended_;
  std::vector<pid_t> stuck_;
  std::vector<int> overdue_;
  std::vector<Supervisor::LeftRunning> left_;
  bool gone_ = false;
};

void InChild(const std::function<void()>& test) {
  const pid_t pid = fork();
  if (pid == 0) {
    BecomeSubreaper();
    test();
    _exit(0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Supervisor, EveryEndIsSeenWithItsCode) {
  InChild([] {
    Bench bench;
    REQUIRE(bench.supervisor_->Start({bench.Rank(0, "exit 0"), bench.Rank(1, "exit 7"), bench.Rank(2, "kill -SEGV $$")})
                .ok());
    bench.RunToTheEnd();
    REQUIRE(bench.ended_.size() == 3);
    for (const auto& ended : bench.ended_) {
      if (ended.rank == 0) REQUIRE(ended.status.success());
      if (ended.rank == 1) REQUIRE(ended.status.code == 7);
      if (ended.rank == 2) REQUIRE(ended.status.signal == SIGSEGV);
      REQUIRE(!ended.after_stop);
    }
  });
}

TEST(Supervisor, ARankThatIgnoresTheSignalIsKilledAfterTheGracePeriod) {
  InChild([] {
    Bench bench;
    REQUIRE(bench.supervisor_->Start({bench.Rank(0, "trap '' TERM; : > $MARK; while :; do sleep 1; done")}).ok());
    bench.AwaitMark(0);
    bench.supervisor_->Stop(SIGTERM, Millis(100));
    bench.RunToTheEnd();
    REQUIRE(bench.ended_[0].status.signal == SIGKILL);
    REQUIRE(bench.ended_[0].after_stop);
    REQUIRE(bench.ended_[0].killed);
    REQUIRE(bench.overdue_ == std::vector<int>{0});
  });
}

TEST(Supervisor, ARankThatCleansUpHasTheTimeToDoSo) {
  InChild([] {
    Bench bench;
    REQUIRE(
        bench.supervisor_->Start({bench.Rank(0, "trap 'exit 75' TERM; : > $MARK; while :; do sleep 0.05; done")}).ok());
    bench.AwaitMark(0);
    bench.supervisor_->Stop(SIGTERM, Millis(20000));
    bench.RunToTheEnd();
    REQUIRE(bench.ended_[0].status.code == 75);
    REQUIRE(!bench.ended_[0].killed);
    REQUIRE(bench.overdue_.empty());
  });
}

TEST(Supervisor, AStoppedRankIsContinuedSoThatItCanEnd) {
  InChild([] {
    Bench bench;
    REQUIRE(bench.supervisor_->Start({bench.Rank(0, ": > $MARK; kill -STOP $$; exec sleep 100")}).ok());
    bench.AwaitMark(0);
    bench.supervisor_->Stop(SIGTERM, Millis(20000));
    bench.RunToTheEnd();
    REQUIRE(bench.ended_[0].status.signal == SIGTERM);
  });
}

TEST(Supervisor, WhatARankLeftRunningIsGoneTooEvenInItsOwnSession) {
  InChild([] {
    Bench bench;
    REQUIRE(bench.supervisor_
                ->Start({bench.Rank(0,
                                    "setsid sh -c 'setsid sleep 1000 & echo $! > $MARK.tmp; mv $MARK.tmp $MARK' & "
                                    "while [ ! -e $MARK ]; do sleep 0.01; done; exit 0")})
                .ok());
    bench.RunToTheEnd();
    std::ifstream mark(bench.Mark(0));
    pid_t orphan = 0;
    mark >> orphan;
    REQUIRE(orphan > 0);
    REQUIRE(kill(orphan, 0) != 0);
    REQUIRE(bench.stuck_.empty());
  });
}

TEST(Supervisor, WhatASuccessfulRankLeftRunningIsNamed) {
  InChild([] {
    Bench bench;
    REQUIRE(
        bench.supervisor_
            ->Start({bench.Rank(0, "true"), bench.Rank(1, "setsid sleep 4321 >/dev/null 2>&1 & echo > $MARK; exit 0")})
            .ok());
    bench.RunToTheEnd();
    REQUIRE(bench.left_.size() == 1);
    REQUIRE(bench.left_[0].rank == 1);
    REQUIRE(bench.left_[0].command == "sleep 4321");
    REQUIRE(ProcessState(bench.left_[0].pid) == 0);
  });
}

TEST(Supervisor, WhatEndsByItselfOrBelongsToAFailedRankIsNoNews) {
  InChild([] {
    Bench bench;
    REQUIRE(
        bench.supervisor_->Start({bench.Rank(0, "sleep 0.05 & exit 0"), bench.Rank(1, "setsid sleep 4321 & exit 3")})
            .ok());
    bench.RunToTheEnd();
    REQUIRE(bench.left_.empty());
  });
}

TEST(Supervisor, IfOneRankCannotStartNoneRuns) {
  InChild([] {
    Bench bench;
    RankPlan bad = bench.Rank(1, "");
    bad.argv = {"/no/such/interpreter"};
    const Status status = bench.supervisor_->Start({bench.Rank(0, "exec sleep 1000"), bad});
    REQUIRE(!status.ok());
    REQUIRE(status.message().find("rank 1") != std::string::npos);
    REQUIRE(Descendants(getpid()).empty());
  });
}

TEST(Supervisor, OtherSignalsArePassedOnWithoutStopping) {
  InChild([] {
    Bench bench;
    REQUIRE(bench.supervisor_
                ->Start({bench.Rank(0, "trap ': > $MARK.usr; exit 4' USR1; : > $MARK; while :; do sleep 0.05; done")})
                .ok());
    bench.AwaitMark(0);
    bench.supervisor_->Forward(SIGUSR1);
    bench.RunToTheEnd();
    REQUIRE(bench.ended_[0].status.code == 4);
    REQUIRE(!bench.ended_[0].after_stop);
  });
}

TEST(Supervisor, ASilentRankHasAnEmptyLog) {
  InChild([] {
    Bench bench;
    REQUIRE(bench.supervisor_->Start({bench.Rank(0, "exit 0")}).ok());
    bench.RunToTheEnd();
    REQUIRE(access((bench.dir_ / "rank-0.log").c_str(), F_OK) == 0);
  });
}

}  // namespace
}  // namespace lockstep::launch
