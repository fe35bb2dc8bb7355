#include "base/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/files.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

ExitStatus WaitFor(const Process& process) {
  const TimePoint deadline = Now() + Millis(20000);
  while (Now() < deadline) {
    pollfd p{process.pidfd.get(), POLLIN, 0};
    poll(&p, 1, 100);
    if (auto status = TryWait(process.pid)) return *status;
  }
  ADD_FAILURE() << "pid " << process.pid << " did not end";
  return {};
}

SpawnOptions Shell(const std::string& script) {
  SpawnOptions options;
  options.argv = {"sh", "-c", script};
  options.env = {"PATH=/usr/bin:/bin", "MARK=7"};
  return options;
}

TEST(Process, ExitCodesAndSignalsAreToldApart) {
  auto code = Spawn(Shell("exit 17"));
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(DescribeExit(WaitFor(*code)), "exit code 17");
  auto signal = Spawn(Shell("kill -9 $$"));
  ASSERT_TRUE(signal.ok());
  EXPECT_EQ(DescribeExit(WaitFor(*signal)), "SIGKILL (signal 9)");
}

TEST(Process, AProgramThatCannotStartIsAnErrorHereAndLeavesNoChild) {
  SpawnOptions options = Shell("");
  options.argv = {"/no/such/program"};
  auto process = Spawn(options);
  ASSERT_FALSE(process.ok());
  EXPECT_THAT(process.status().message(), HasSubstr("/no/such/program"));
  EXPECT_THAT(process.status().message(), HasSubstr("ENOENT"));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child was left";
}

TEST(Process, NamesAreLookedUpInThePathOfTheChild) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  ASSERT_TRUE(WriteFileAtomic(*dir / "only-here", "#!/bin/sh\nexit 5\n", 0755).ok());
  SpawnOptions options = Shell("");
  options.argv = {"only-here"};
  EXPECT_FALSE(Spawn(options).ok());
  options.env = {"PATH=/bin:" + dir->path()};
  auto process = Spawn(options);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(WaitFor(*process).code, 5);
}

TEST(Process, TheChildHasItsOwnSessionEnvironmentFolderAndOutput) {
  auto dir = TempDir::Create();
  ASSERT_TRUE(dir.ok());
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  UniqueFd read_end(fds[0]);
  UniqueFd write_end(fds[1]);
  SpawnOptions options = Shell("echo $MARK; pwd; [ $(ps -o sid= -p $$) = $$ ] && echo leader");
  options.workdir = dir->path();
  options.stdout_fd = write_end.get();
  auto process = Spawn(options);
  ASSERT_TRUE(process.ok());
  write_end.reset();
  std::string text;
  char buffer[512];
  while (ssize_t got = read(read_end.get(), buffer, sizeof buffer)) {
    ASSERT_GT(got, 0);
    text.append(buffer, static_cast<size_t>(got));
  }
  EXPECT_EQ(text, "7\n" + dir->path() + "\nleader\n");
  WaitFor(*process);
}

TEST(Process, SignalsBlockedHereAreNotBlockedInTheChild) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &before);
  auto process = Spawn(Shell("exec sleep 100"));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(process.ok());
  SignalProcess(*process, SIGTERM);
  EXPECT_EQ(WaitFor(*process).signal, SIGTERM);
}

TEST(Process, OrphansInSessionsOfTheirOwnAreFoundAndKilled) {
  const pid_t tester = fork();
  if (tester == 0) {  // a subreaper of its own, so that other tests' processes are not touched
    BecomeSubreaper();
    auto dir = TempDir::Create();
    const std::string mark = *dir / "pid";
    auto process = Spawn(Shell("setsid sh -c 'setsid sleep 1000 & echo $! > " + mark + "' & wait; exit 0"));
    if (!process.ok()) _exit(10);
    const TimePoint deadline = Now() + Millis(20000);
    while (!TryWait(process->pid)) {
      if (Now() > deadline) _exit(11);
      usleep(1000);
    }
    auto orphans = Descendants(getpid());
    if (orphans.empty()) _exit(12);
    if (!KillDescendants(10).empty()) _exit(13);
    for (pid_t pid : orphans) {
      if (kill(pid, 0) == 0) _exit(14);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(tester, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Process, AChildDiesWithItsParent) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, 0), 0);
  UniqueFd read_end(fds[0]);
  const pid_t parent = fork();
  if (parent == 0) {
    auto child = Spawn(Shell("exec sleep 1000"));
    const pid_t pid = child.ok() ? child->pid : -1;
    (void)!write(fds[1], &pid, sizeof pid);
    raise(SIGKILL);
  }
  close(fds[1]);
  pid_t child = -1;
  ASSERT_EQ(read(read_end.get(), &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_GT(child, 0);
  // The child holds the write end too: end of file means that it is gone.
  char byte;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 0);
  waitpid(parent, nullptr, 0);
}

TEST(Process, AStartTimeNamesAProcess) {
  EXPECT_GT(ProcessStartTime(getpid()), 0u);
  EXPECT_EQ(ProcessStartTime(getpid()), ProcessStartTime(getpid()));
  EXPECT_EQ(ProcessStartTime(1 << 30), 0u);
  EXPECT_EQ(ProcessState(getpid()), 'R');
}

TEST(Process, SignalsHaveNamesBothWays) {
  EXPECT_EQ(SignalName(SIGUSR1), "SIGUSR1");
  EXPECT_EQ(SignalNumber("SIGTERM"), SIGTERM);
  EXPECT_EQ(SignalNumber("HUP"), SIGHUP);
  EXPECT_EQ(SignalNumber("15"), 15);
  for (const char* bad : {"", "SIGNOTHING", "0", "-3", "999", "15x"}) EXPECT_EQ(SignalNumber(bad), 0) << bad;
}

}  // namespace
}  // namespace lockstep
