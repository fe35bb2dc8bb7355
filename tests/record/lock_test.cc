#include "record/lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/process.h"

namespace lockstep::record {
namespace {

using testing::HasSubstr;

class LockTest : public testing::Test {
 protected:
  void WriteLock(const LockOwner& owner, double age_seconds) { WriteLock(owner.ToJson().dump(), age_seconds); }
  void WriteLock(const std::string& content, double age_seconds) {
    ASSERT_TRUE(WriteFileAtomic(path_, content).ok());
    double when = UnixSeconds() - age_seconds;
    timespec times[2] = {{static_cast<time_t>(when), 0}, {static_cast<time_t>(when), 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }
  bool LockExists() const { return ::access(path_.c_str(), F_OK) == 0; }

  // A pid that was ours and is nobody's now.
  static pid_t DeadPid() {
    pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return child;
  }

  TempDir dir_ = *TempDir::Create();
  std::string path_ = dir_ / "lock";
};

TEST_F(LockTest, AFreeLockIsTakenAndNamesThisProcess) {
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  EXPECT_FALSE(lock->taken_over().has_value());
  LockView view = ReadLock(path_);
  EXPECT_EQ(view.state, LockState::kLive);
  ASSERT_TRUE(view.owner.has_value());
  EXPECT_EQ(view.owner->pid, ::getpid());
  EXPECT_EQ(view.owner->start_time, ProcessStartTime(::getpid()));
  EXPECT_TRUE(view.owner->IsHere());
}

TEST_F(LockTest, AHeldLockIsRefusedNamingItsOwner) {
  Result<RunLock> first = RunLock::Acquire(path_);
  ASSERT_TRUE(first.ok());
  Result<RunLock> second = RunLock::Acquire(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kEnvironment);
  EXPECT_THAT(second.status().message(), HasSubstr("pid " + std::to_string(::getpid()) + " on " + HostName()));
  EXPECT_THAT(second.status().message(), HasSubstr("since 20"));
  EXPECT_THAT(second.status().hint(), HasSubstr("--name"));
}

TEST_F(LockTest, ReleasingLeavesNoFileAndFreesIt) {
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok());
  lock->Release();
  EXPECT_FALSE(LockExists());
  EXPECT_EQ(ReadLock(path_).state, LockState::kFree);
  EXPECT_TRUE(RunLock::Acquire(path_).ok());
}

TEST_F(LockTest, AForkedChildThatReleasesItsCopyDoesNotReleaseTheRun) {
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok());
  pid_t child = ::fork();
  if (child == 0) {
    lock->Release();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(LockExists());
  EXPECT_FALSE(RunLock::Acquire(path_).ok());
}

TEST_F(LockTest, TheLockOfADeadProcessIsStaleAndTakenOver) {
  LockOwner owner = LockOwner::Self();
  owner.pid = DeadPid();
  WriteLock(owner, 0);
  EXPECT_EQ(ReadLock(path_).state, LockState::kStale);
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  ASSERT_TRUE(lock->taken_over().has_value());
  EXPECT_EQ(lock->taken_over()->owner->pid, owner.pid);
  EXPECT_THAT(lock->taken_over()->why, HasSubstr("is gone"));
  EXPECT_EQ(ReadLock(path_).owner->pid, ::getpid());
}

TEST_F(LockTest, AReusedPidIsNotMistakenForTheOwner) {
  LockOwner owner = LockOwner::Self();
  owner.start_time -= 1;  // this pid lives, but as another process
  WriteLock(owner, 0);
  LockView view = ReadLock(path_);
  EXPECT_EQ(view.state, LockState::kStale);
  EXPECT_THAT(view.why, HasSubstr("another process"));
}

TEST_F(LockTest, AZombieOwnerIsStale) {
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  pid_t child = ::fork();
  if (child == 0) {
    char byte;
    (void)!::read(gate[0], &byte, 1);
    ::_exit(0);
  }
  LockOwner owner = LockOwner::Self();
  owner.pid = child;
  owner.start_time = ProcessStartTime(child);
  WriteLock(owner, 0);
  EXPECT_EQ(ReadLock(path_).state, LockState::kLive);
  (void)!::write(gate[1], "x", 1);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(ReadLock(path_).state, LockState::kStale);
  ::waitpid(child, nullptr, 0);
  ::close(gate[0]);
  ::close(gate[1]);
}

TEST_F(LockTest, ALockOfAnotherHostLivesByItsHeartbeat) {
  LockOwner owner = LockOwner::Self();
  owner.host = "some-other-host";
  WriteLock(owner, 30);
  EXPECT_EQ(ReadLock(path_).state, LockState::kLive);
  Result<RunLock> refused = RunLock::Acquire(path_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().ToString(), HasSubstr("some-other-host"));

  WriteLock(owner, 90);
  EXPECT_EQ(ReadLock(path_).state, LockState::kStale);
  Result<RunLock> taken = RunLock::Acquire(path_);
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  EXPECT_THAT(taken->taken_over()->why, HasSubstr("no sign of life for 1m3"));
}

TEST_F(LockTest, AnotherBootOrPidNamespaceIsAnotherHost) {
  LockOwner owner = LockOwner::Self();
  owner.boot_id = "00000000-0000-0000-0000-000000000000";
  EXPECT_FALSE(owner.IsHere());
  owner = LockOwner::Self();
  owner.pid_ns = "pid:[1]";
  EXPECT_FALSE(owner.IsHere());
}

TEST_F(LockTest, TornContentIsJudgedByItsAge) {
  WriteLock("{\"pid\": 47", 10);
  EXPECT_EQ(ReadLock(path_).state, LockState::kLive);
  EXPECT_FALSE(RunLock::Acquire(path_).ok());
  WriteLock("{\"pid\": 47", 90);
  Result<RunLock> taken = RunLock::Acquire(path_);
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  EXPECT_FALSE(taken->taken_over()->owner.has_value());
}

TEST_F(LockTest, AnEmptyLeftoverNobodyHoldsIsFree) {
  WriteLock("", 0);
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok()) << lock.status().ToString();
  EXPECT_FALSE(lock->taken_over().has_value());
}

TEST_F(LockTest, TouchingRefreshesTheHeartbeatAndNoticesARemovedLock) {
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok());
  timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), old, 0), 0);
  ASSERT_TRUE(lock->Touch().ok());
  EXPECT_GT(ReadLock(path_).heartbeat, 1e9);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_FALSE(lock->Touch().ok());
}

TEST_F(LockTest, ReleaseDoesNotRemoveALockThatReplacedIt) {
  Result<RunLock> lock = RunLock::Acquire(path_);
  ASSERT_TRUE(lock.ok());
  WriteLock("somebody else's", 0);
  lock->Release();
  EXPECT_TRUE(LockExists());
}

TEST_F(LockTest, OfManyProcessesThatWantAStaleLockExactlyOneGetsIt) {
  for (int round = 0; round < 10; ++round) {
    LockOwner owner = LockOwner::Self();
    owner.pid = DeadPid();
    WriteLock(owner, 0);
    int start[2], verdict[2];
    ASSERT_EQ(::pipe(start), 0);
    ASSERT_EQ(::pipe(verdict), 0);
    constexpr int kChildren = 8;
    std::vector<pid_t> children;
    for (int i = 0; i < kChildren; ++i) {
      pid_t child = ::fork();
      if (child == 0) {
        ::close(start[1]);
        char byte;
        (void)!::read(start[0], &byte, 1);  // returns when the parent closes its end
        Result<RunLock> lock = RunLock::Acquire(path_);
        (void)!::write(verdict[1], lock.ok() ? "y" : "n", 1);
        // A winner keeps it until everybody has tried.
        ::pause();
        ::_exit(0);
      }
      children.push_back(child);
    }
    ::close(start[1]);
    ::close(verdict[1]);
    int winners = 0;
    for (int i = 0; i < kChildren; ++i) {
      char answer = 0;
      ASSERT_EQ(::read(verdict[0], &answer, 1), 1);
      winners += answer == 'y' ? 1 : 0;
    }
    for (pid_t child : children) ::kill(child, SIGKILL);
    for (pid_t child : children) ::waitpid(child, nullptr, 0);
    ::close(start[0]);
    ::close(verdict[0]);
    EXPECT_EQ(winners, 1) << "round " << round;
  }
}

}  // namespace
}  // namespace lockstep::record
