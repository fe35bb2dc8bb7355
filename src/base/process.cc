#include "base/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/clock.h"
#include "base/digits.h"
#include "base/secrets.h"
#include "base/text.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace lockstep {
namespace {

// Small /proc files only: one read.
std::string Slurp(const std::string& path, size_t limit = 16384) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "";
  std::string text(limit, '\0');
  const ssize_t got = read(fd.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

// The fields of /proc/<pid>/stat from the third (state) on; the second, the name, may hold anything, so start after the
// last parenthesis.
std::vector<std::string> StatFields(pid_t pid) {
  const std::string text = Slurp("/proc/" + std::to_string(pid) + "/stat");
  std::vector<std::string> fields;
  const size_t close = text.rfind(')');
  if (close == std::string::npos) return fields;
  size_t at = close + 1;
  while (at < text.size()) {
    while (at < text.size() && text[at] == ' ') ++at;
    const size_t end = text.find_first_of(" \n", at);
    if (end == std::string::npos || end == at) break;
    fields.push_back(text.substr(at, end - at));
    at = end;
  }
  return fields;
}

std::string LookUp(const std::string& name, const std::vector<std::string>& env) {
  if (name.find('/') != std::string::npos) return name;
  std::string path = "/usr/local/bin:/usr/bin:/bin";
  for (const auto& entry : env) {
    if (entry.rfind("PATH=", 0) == 0) path = entry.substr(5);
  }
  size_t at = 0;
  while (at <= path.size()) {
    const size_t end = std::min(path.find(':', at), path.size());
    const std::string candidate = (end == at ? std::string(".") : path.substr(at, end - at)) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    at = end + 1;
  }
  return name;
}

// What the child does between fork and exec: system calls only.
[[noreturn]] void Child(const SpawnOptions& options, const char* path, char* const* argv, char* const* env,
                        pid_t parent, int report) {
  if (options.new_session) setsid();
  if (options.die_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent died before prctl
  }
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int error = 0;
  if (options.stdin_fd >= 0 && dup2(options.stdin_fd, 0) < 0) error = errno;
  if (options.stdout_fd >= 0 && dup2(options.stdout_fd, 1) < 0) error = errno;
  if (options.stderr_fd >= 0 && dup2(options.stderr_fd, 2) < 0) error = errno;
  if (error == 0 && !options.workdir.empty() && chdir(options.workdir.c_str()) != 0) error = errno;
  if (!options.cpus.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu : options.cpus) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);  // a cpuset that shrank meanwhile is no reason to fail
  }
  if (error == 0) {
    execve(path, argv, env);
    error = errno;
  }
  (void)!write(report, &error, sizeof error);
  _exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

int SignalNumber(const std::string& name) {
  if (IsDigits(name)) {
    const int number = ParseDigits(name).value_or(0);
    return number < NSIG ? number : 0;
  }
  const std::string bare = name.rfind("SIG", 0) == 0 ? name.substr(3) : name;
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* abbreviation = sigabbrev_np(signal);
    if (abbreviation != nullptr && bare == abbreviation) return signal;
  }
  return 0;
}

std::string DescribeExit(const ExitStatus& status) {
  if (status.signal == 0) return "exit code " + std::to_string(status.code);
  return SignalName(status.signal) + " (signal " + std::to_string(status.signal) +
         (status.core_dumped ? ", core dumped)" : ")");
}

Result<Process> Spawn(const SpawnOptions& options) {
  if (options.argv.empty()) return Status(Code::kInternal, "spawn: empty argument list");
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return Status(Code::kEnvironment, "pipe: " + ErrnoText(errno));
  UniqueFd read_end(pipe_fds[0]);
  UniqueFd write_end(pipe_fds[1]);
  const std::string path = LookUp(options.argv[0], options.env);
  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> env = Pointers(options.env);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return Status(Code::kEnvironment, "cannot start " + options.argv[0] + ": fork: " + ErrnoText(errno),
                  "raise the process limit (ulimit -u, the pids cgroup) or free memory");
  }
  if (pid == 0) Child(options, path.c_str(), argv.data(), env.data(), parent, write_end.get());
  write_end.reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(read_end.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    waitpid(pid, nullptr, 0);
    std::string hint;
    if (error == ENOENT) hint = "check the path; for a script, check the interpreter of its first line";
    if (error == EACCES) hint = "make it executable (chmod +x) or name its interpreter";
    if (error == ENOEXEC) hint = "it is neither a program for this machine nor a script with a #! line";
    return Status(Code::kEnvironment, "cannot start " + path + ": " + ErrnoText(error), hint);
  }
  Process process;
  process.pid = pid;
  process.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (process.pidfd) fcntl(process.pidfd.get(), F_SETFD, FD_CLOEXEC);
  return process;
}

void SignalProcess(const Process& process, int signal) {
  if (process.pid <= 0) return;
  if (process.pidfd && syscall(SYS_pidfd_send_signal, process.pidfd.get(), signal, nullptr, 0) == 0) return;
  kill(process.pid, signal);
}

void SignalGroup(const Process& process, int signal) {
  if (process.pid > 0) kill(-process.pid, signal);
}

std::optional<ExitStatus> TryWait(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return std::nullopt;
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
    status.core_dumped = info.si_code == CLD_DUMPED;
  }
  return status;
}

void BecomeSubreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> Descendants(pid_t root) {
  std::map<pid_t, std::vector<pid_t>> children;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return {};
  while (dirent* entry = readdir(proc)) {
    const std::optional<pid_t> pid = ParseDigits<pid_t>(entry->d_name);
    if (!pid) continue;
    const auto fields = StatFields(*pid);
    if (fields.size() < 2 || fields[0] == "Z" || fields[0] == "X") continue;
    children[ParseDigits<pid_t>(fields[1]).value_or(0)].push_back(*pid);
  }
  closedir(proc);
  std::vector<pid_t> found{root};
  for (size_t i = 0; i < found.size(); ++i) {
    auto it = children.find(found[i]);
    if (it != children.end()) found.insert(found.end(), it->second.begin(), it->second.end());
  }
  found.erase(found.begin());
  return found;
}

bool ReapAll() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) return errno == ECHILD;
    if (info.si_pid == 0) return false;
  }
}

std::vector<pid_t> KillDescendants(double seconds) {
  const TimePoint start = Now();
  int pause_us = 200;
  // The kernel's word that there is no child at all ends this, not a look into /proc: a process that forks and dies
  // between two looks hides its child, but a subreaper's orphans are its children at once.
  while (!ReapAll()) {
    const auto left = Descendants(getpid());
    if (SecondsSince(start) > seconds) return left;
    for (pid_t pid : left) kill(pid, SIGKILL);
    usleep(pause_us);
    pause_us = std::min(pause_us * 2, 20000);
  }
  return {};
}

uint64_t ProcessStartTime(pid_t pid) {
  const auto fields = StatFields(pid);
  return fields.size() > 19 ? ParseDigits<uint64_t>(fields[19]).value_or(0) : 0;
}

char ProcessState(pid_t pid) {
  const auto fields = StatFields(pid);
  return fields.empty() ? '\0' : fields[0][0];
}

std::string ProcessCommand(pid_t pid, size_t limit) {
  std::string text = Slurp("/proc/" + std::to_string(pid) + "/cmdline", 4096);
  while (!text.empty() && text.back() == '\0') text.pop_back();
  text = Join(MaskArguments(Split(text, '\0')), " ");
  if (text.size() > limit) text = text.substr(0, limit) + "...";
  return text;
}

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

std::string BootId() {
  std::string text = Slurp("/proc/sys/kernel/random/boot_id", 64);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace lockstep
