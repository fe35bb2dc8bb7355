#include "launch/guardian.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/process.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

constexpr double kKillSeconds = 10;

// Everything but the signals a process cannot or should not catch, and those of job control: Ctrl-Z stops the guardian
// alone, the job goes on in the background.
sigset_t Handled() {
  sigset_t set;
  sigfillset(&set);
  for (int signal : {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    sigdelset(&set, signal);
  }
  return set;
}

// The launcher is gone and its descendants are ours: ask, wait a little, insist.
void EndOrphans(std::chrono::milliseconds grace) {
  if (ReapAll()) return;
  const auto orphans = Descendants(getpid());
  fmt::print(stderr, "lockstep: stopping {} it left\n",
             Count(static_cast<int64_t>(orphans.size()), "process", "processes"));
  for (pid_t pid : orphans) kill(pid, SIGTERM);
  const double patience = std::min(5.0, grace.count() / 1000.0);
  const TimePoint start = Now();
  while (SecondsSince(start) < patience) {
    if (ReapAll()) return;
    usleep(20000);
  }
  for (pid_t pid : KillDescendants(kKillSeconds)) {
    fmt::print(stderr, "lockstep: pid {} does not die (state {}): {}\n", pid, ProcessState(pid), ProcessCommand(pid));
  }
}

}  // namespace

int RunGuarded(std::chrono::milliseconds grace, const std::function<int(UniqueFd)>& launcher) {
  sigset_t handled = Handled();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &handled, &before);
  BecomeSubreaper();
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    fmt::print(stderr, "lockstep: pipe: {}\n", ErrnoText(errno));
    return kExitEnvironment;
  }
  UniqueFd read_end(fds[0]);
  UniqueFd write_end(fds[1]);
  const pid_t child = fork();
  if (child < 0) {
    fmt::print(stderr, "lockstep: fork: {}\n", ErrnoText(errno));
    return kExitEnvironment;
  }
  if (child == 0) {
    write_end.reset();
    // A group of its own: Ctrl-C comes once, forwarded, and not a second time from the terminal.
    setpgid(0, 0);
    BecomeSubreaper();
    const int code = launcher(std::move(read_end));
    fflush(nullptr);
    _exit(code);
  }
  read_end.reset();
  while (true) {
    siginfo_t info{};
    const int signal = sigwaitinfo(&handled, &info);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      kill(child, signal);
      continue;
    }
    int status = 0;
    pid_t ended = 0;
    bool over = false;
    int code = 0;
    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended != child) continue;  // an orphan that ended by itself
      over = true;
      code = WIFEXITED(status) ? WEXITSTATUS(status) : ExitOfSignal(WTERMSIG(status));
      if (WIFSIGNALED(status)) {
        fmt::print(stderr, "lockstep: the launcher (pid {}) was killed by {}\n", child, SignalName(WTERMSIG(status)));
      }
    }
    if (!over) continue;
    EndOrphans(grace);
    return code;
  }
}

}  // namespace lockstep::launch
