// Child processes by pidfd, with waitid and kill where the kernel has none (before 5.3). The system calls are made raw:
// their glibc wrappers are newer than the glibc we promise to run on. Main thread only (PR_SET_PDEATHSIG follows the
// thread that forked).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep {

struct ExitStatus {
  int code = 0;    // exit code when signal == 0
  int signal = 0;  // the signal that ended it, or 0
  bool core_dumped = false;

  bool success() const { return code == 0 && signal == 0; }
};

// "exit code 1", "SIGKILL (signal 9)", "SIGSEGV (signal 11, core dumped)".
std::string DescribeExit(const ExitStatus& status);
// "SIGTERM" for 15; "signal 63" for one without a name.
std::string SignalName(int signal);
// 15 for "SIGTERM", "TERM" or "15"; 0 when unknown.
int SignalNumber(const std::string& name);

struct SpawnOptions {
  std::vector<std::string> argv;
  std::vector<std::string> env;  // the complete environment, "K=V"
  std::string workdir;           // empty: unchanged
  int stdin_fd = -1;             // -1: inherited
  int stdout_fd = -1;
  int stderr_fd = -1;
  bool new_session = true;
  bool die_with_parent = true;  // SIGKILL when this process dies
  std::vector<int> cpus;        // sched_setaffinity; empty: unchanged
};

struct Process {
  pid_t pid = -1;
  UniqueFd pidfd;  // invalid where the kernel has none
};

// Starts argv[0] (a path, or a name looked up in the PATH of `env`). An exec that fails is an error here, with its
// errno; no child is left.
Result<Process> Spawn(const SpawnOptions& options);

// The whole process group led by this process (it leads its own session); ESRCH is not an error.
void SignalProcess(const Process& process, int signal);
void SignalGroup(const Process& process, int signal);

// Reaps `pid` if it has ended.
std::optional<ExitStatus> TryWait(pid_t pid);

// Makes orphaned descendants children of this process instead of init's.
void BecomeSubreaper();

// Every living process below `root` in the process tree, children before grandchildren. Zombies are left out.
std::vector<pid_t> Descendants(pid_t root);

// Reaps every child that has ended. True when no child of any kind is left.
bool ReapAll();

// Sends SIGKILL to every descendant of this process, a subreaper, until none is left or the deadline passes; reaps all.
// Returns those that remain (a process in uninterruptible sleep does not die).
std::vector<pid_t> KillDescendants(double seconds);

// Field 22 of /proc/<pid>/stat: with the pid it names a process for good. 0 when there is none.
uint64_t ProcessStartTime(pid_t pid);
// The state letter of /proc/<pid>/stat ('R', 'S', 'D', 'Z', ...), or 0.
char ProcessState(pid_t pid);
// The command line with blanks, at most `limit` characters; empty when unknown.
std::string ProcessCommand(pid_t pid, size_t limit = 120);

std::string HostName();
// This boot of this kernel (hosts in network namespaces share it).
std::string BootId();

}  // namespace lockstep
