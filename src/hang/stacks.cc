#include "hang/stacks.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/digits.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "hang/hang.h"
#include "hang/stacks_python.h"

extern char** environ;

namespace lockstep::hang {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMostThreads = 256;
constexpr size_t kMostChildren = 64;
constexpr size_t kMostOutput = 4u << 20;
constexpr size_t kSources = 3;
constexpr int kLongestSource = 200000;
constexpr int kLooksAtD = 20;           // 25 ms apart: who reads a page or forks is in state D for a moment too
constexpr unsigned kParallelTools = 4;  // a debugger on a large program takes a core and a gigabyte

std::string ReadSmall(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return "";
  char buffer[8192];
  const ssize_t n = read(fd.get(), buffer, sizeof buffer);
  std::string text(buffer, n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

// Calls a thread can sleep in for long; by number of this machine's kind.
std::string SyscallName(const std::string& line) {
  if (line.empty() || line == "running") return line;
#if defined(__x86_64__)
  static const std::map<int, const char*> kNames = {
      {0, "read"},           {1, "write"},        {7, "poll"},          {17, "pread64"},
      {18, "pwrite64"},      {19, "readv"},       {20, "writev"},       {23, "select"},
      {35, "nanosleep"},     {42, "connect"},     {43, "accept"},       {44, "sendto"},
      {45, "recvfrom"},      {46, "sendmsg"},     {47, "recvmsg"},      {61, "wait4"},
      {72, "fcntl"},         {73, "flock"},       {74, "fsync"},        {75, "fdatasync"},
      {128, "sigtimedwait"}, {130, "sigsuspend"}, {202, "futex"},       {230, "clock_nanosleep"},
      {232, "epoll_wait"},   {247, "waitid"},     {257, "openat"},      {262, "newfstatat"},
      {270, "pselect6"},     {271, "ppoll"},      {281, "epoll_pwait"}, {288, "accept4"},
      {16, "ioctl"},         {26, "msync"},       {34, "pause"}};
#elif defined(__aarch64__)
  static const std::map<int, const char*> kNames = {
      {63, "read"},        {64, "write"},         {65, "readv"},    {66, "writev"},     {72, "pselect6"},
      {73, "ppoll"},       {82, "fsync"},         {98, "futex"},    {101, "nanosleep"}, {115, "clock_nanosleep"},
      {22, "epoll_pwait"}, {203, "connect"},      {206, "sendto"},  {207, "recvfrom"},  {212, "recvmsg"},
      {260, "wait4"},      {95, "waitid"},        {29, "ioctl"},    {32, "flock"},      {56, "openat"},
      {25, "fcntl"},       {67, "pread64"},       {68, "pwrite64"}, {79, "newfstatat"}, {83, "fdatasync"},
      {133, "sigsuspend"}, {137, "sigtimedwait"}, {202, "accept"},  {211, "sendmsg"},   {227, "msync"}};
#else
  static const std::map<int, const char*> kNames = {};
#endif
  const int number = LeadingDigits(line).value_or(0);
  const auto it = kNames.find(number);
  return it != kNames.end() ? it->second : fmt::format("system call {}", number);
}

ThreadStack ReadThread(pid_t pid, pid_t tid) {
  const std::string folder = fmt::format("/proc/{}/task/{}/", pid, tid);
  ThreadStack thread;
  thread.tid = tid;
  thread.main = pid == tid;
  thread.name = ReadSmall(folder + "comm");
  const std::string stat = ReadSmall(folder + "stat");
  if (const size_t close = stat.rfind(')'); close != std::string::npos && close + 2 < stat.size()) {
    thread.state = stat[close + 2];
  }
  thread.wchan = ReadSmall(folder + "wchan");
  if (thread.wchan == "0") thread.wchan.clear();
  thread.syscall = SyscallName(ReadSmall(folder + "syscall"));
  const std::string status = ReadSmall(folder + "status");
  static constexpr std::string_view kSwitches = "\nvoluntary_ctxt_switches:";
  if (const size_t at = status.find(kSwitches); at != std::string::npos) {
    thread.switches = LeadingDigits<int64_t>(Trim(std::string_view(status).substr(at + kSwitches.size()))).value_or(0);
  }
  std::istringstream lines(ReadSmall(folder + "stack"));  // root only
  for (std::string line; std::getline(lines, line) && thread.kernel.size() < 24;) {
    const size_t space = line.find("] ");
    thread.kernel.push_back(space == std::string::npos ? line : line.substr(space + 2));
  }
  return thread;
}

std::vector<pid_t> Numbers(const std::string& folder) {
  std::vector<pid_t> found;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(folder.c_str()), closedir);
  while (dir) {
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    if (const auto number = ParseDigits<pid_t>(entry->d_name)) found.push_back(*number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

ProcessStacks ReadProcess(pid_t pid) {
  ProcessStacks process;
  process.pid = pid;
  process.command = ProcessCommand(pid, 200);
  const char state = ProcessState(pid);
  if (state == 0 || state == 'Z' || state == 'X') {
    process.gone = true;
    return process;
  }
  process.threads.push_back(ReadThread(pid, pid));
  const std::vector<pid_t> tids = Numbers(fmt::format("/proc/{}/task", pid));
  for (pid_t tid : tids) {
    if (tid != pid && process.threads.size() < kMostThreads) process.threads.push_back(ReadThread(pid, tid));
  }
  if (tids.size() > kMostThreads) process.notes.push_back(fmt::format("{} threads, not all shown", tids.size()));
  return process;
}

// Frames from a tool belong to the thread of the same number; a thread nobody knew is added.
void Merge(std::vector<ThreadStack> from, ProcessStacks* to) {
  for (ThreadStack& thread : from) {
    if (thread.main && thread.tid == 0) thread.tid = to->pid;
    auto it = std::find_if(to->threads.begin(), to->threads.end(),
                           [&](const ThreadStack& known) { return thread.tid != 0 && known.tid == thread.tid; });
    if (it == to->threads.end()) {
      to->threads.push_back(std::move(thread));
      continue;
    }
    if (!thread.python.empty()) it->python = std::move(thread.python);
    if (!thread.native.empty()) it->native = std::move(thread.native);
  }
}

std::string FindTool(const std::string& name, const std::string& path, pid_t pid) {
  std::vector<std::string> folders = Split(path, ':');
  // An environment's tools lie beside its interpreter, whether or not anybody activated it.
  const std::string command = ReadSmall(fmt::format("/proc/{}/cmdline", pid));
  if (const std::string first = command.substr(0, command.find('\0')); first.starts_with("/")) {
    folders.insert(folders.begin(), first.substr(0, first.rfind('/')));
  }
  for (const std::string& folder : folders) {
    const std::string file = folder + "/" + name;
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// What a tool prints on stdout, cut off at the deadline. The launcher's own reaper may take its exit status; the
// output is what counts.
std::string RunTool(const std::vector<std::string>& argv, Clock::time_point until) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return "";
  UniqueFd out(fds[0]), in(fds[1]);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, in.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_init(&attributes);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigfillset(&defaults);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, argv[0].c_str(), &actions, &attributes, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  in.reset();
  if (failed != 0) return "";
  std::string text;
  bool ended = false;
  while (text.size() < kMostOutput) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
    pollfd fd{out.get(), POLLIN, 0};
    if (left <= 0 || poll(&fd, 1, static_cast<int>(left)) <= 0) break;
    char buffer[65536];
    const ssize_t n = read(out.get(), buffer, sizeof buffer);
    if (n <= 0) {
      ended = true;
      break;
    }
    text.append(buffer, static_cast<size_t>(n));
  }
  if (!ended) {
    // SIGTERM lets a debugger let go of the process first.
    kill(-pid, SIGTERM);
    for (int i = 0; i < 50 && waitpid(pid, nullptr, WNOHANG) == 0; ++i) usleep(10000);
    kill(-pid, SIGKILL);
    text.clear();
  }
  waitpid(pid, nullptr, 0);
  return text;
}

// Waits its turn among the tools.
class Turn {
 public:
  Turn() {
    std::unique_lock lock(mutex);
    available.wait(lock, [] { return used < kParallelTools; });
    ++used;
  }
  ~Turn() {
    std::lock_guard lock(mutex);
    --used;
    available.notify_one();
  }

 private:
  static inline std::mutex mutex;
  static inline std::condition_variable available;
  static inline unsigned used = 0;
};

void AddPython(const StackOptions& options, const std::string& path, Clock::time_point until, ProcessStacks* process) {
  auto read = ReadPythonStacks(process->pid);
  if (read.ok()) {
    Merge(std::move(*read), process);
    process->notes.push_back("Python frames: read from its memory");
    return;
  }
  const std::string tool = options.tools ? FindTool("py-spy", path, process->pid) : "";
  if (!tool.empty()) {
    std::vector<std::string> argv = {tool, "dump", "--json", "--pid", std::to_string(process->pid)};
    if (!options.pause) argv.push_back("--nonblocking");
    auto threads = ParsePySpy(RunTool(argv, std::min(until, Clock::now() + options.tool)));
    if (!threads.empty()) {
      Merge(std::move(threads), process);
      process->notes.push_back("Python frames: py-spy");
      return;
    }
    process->notes.push_back("py-spy gave nothing (not permitted, or too slow)");
  }
  if (IsPython(process->pid)) process->notes.push_back("no Python frames: " + read.status().message());
}

void AddNative(const StackOptions& options, const std::string& path, Clock::time_point until, ProcessStacks* process) {
  const std::string pid = std::to_string(process->pid);
  const Turn turn;
  if (const std::string tool = FindTool("eu-stack", path, 0); !tool.empty()) {
    auto threads = ParseEuStack(RunTool({tool, "-n", "64", "-p", pid}, std::min(until, Clock::now() + options.tool)));
    if (!threads.empty()) {
      Merge(std::move(threads), process);
      process->notes.push_back("native frames: eu-stack");
      return;
    }
  }
  if (const std::string tool = FindTool("gdb", path, 0); !tool.empty()) {
    auto threads = ParseGdb(RunTool(
        {tool, "-nx", "-nw", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off", "-iex",
         "set confirm off", "-ex", "set print frame-arguments none", "-p", pid, "-ex", "thread apply all bt 64"},
        std::min(until, Clock::now() + options.tool)));
    if (!threads.empty()) {
      Merge(std::move(threads), process);
      process->notes.push_back("native frames: gdb");
      return;
    }
    process->notes.push_back("gdb gave nothing (not permitted, or too slow)");
  } else {
    process->notes.push_back("no native frames: neither eu-stack nor gdb is installed");
  }
}

// The text of the innermost lines: what is called there in C shows in no frame.
void AddSources(ProcessStacks* process) {
  if (process->threads.empty()) return;
  auto& frames = process->threads.front().python;
  const std::string root = fmt::format("/proc/{}/root", process->pid);
  for (size_t i = 0; i < std::min<size_t>(frames.size(), kSources); ++i) {
    StackFrame& frame = frames[i];
    if (frame.line <= 0 || frame.file.empty() || frame.file[0] == '<') continue;
    const std::string path =
        frame.file[0] == '/' ? root + frame.file : fmt::format("/proc/{}/cwd/{}", process->pid, frame.file);
    std::ifstream file(path);
    std::string line;
    for (int number = 0; number < frame.line && std::getline(file, line) && number < kLongestSource; ++number) {
    }
    if (file) frame.source = std::string(Trim(line.substr(0, 400)));
  }
}

bool Asleep(const ProcessStacks& process) { return !process.threads.empty() && process.threads.front().state == 'S'; }

ProcessStacks Look(const StackTarget& target, const StackOptions& options, const std::string& path,
                   Clock::time_point until) {
  ProcessStacks process = ReadProcess(target.pid);
  for (int i = 0; i < kLooksAtD && !process.gone && process.threads.front().state == 'D' && Clock::now() < until; ++i) {
    usleep(25000);
    process = ReadProcess(target.pid);
  }
  process.rank = target.rank;
  process.node = target.node;
  if (process.gone) return process;
  AddPython(options, path, until, &process);
  AddSources(&process);
  for (pid_t child : Descendants(target.pid)) {
    if (process.children.size() >= kMostChildren) break;
    ProcessStacks below = ReadProcess(child);
    if (below.gone) continue;
    AddPython(options, path, until, &below);
    AddSources(&below);
    process.children.push_back(std::move(below));
  }
  // Python's own frames say more than the C code below them; a debugger is for what they do not explain. A process in
  // state D or T would hold the debugger up.
  const Where where = Locate(process).where;
  const bool unexplained = where == Where::kUnknown || (where == Where::kCode && Asleep(process));
  const bool wrapper = !process.children.empty() && process.threads.front().python.empty() && where != Where::kUnknown;
  if (options.tools && options.pause && unexplained && !wrapper && process.threads.front().state != 'D') {
    const char before = ProcessState(process.pid);
    AddNative(options, path, until, &process);
    // A debugger that had to be cut off may leave the process stopped.
    if (before != 'T' && ProcessState(process.pid) == 'T') kill(process.pid, SIGCONT);
  }
  return process;
}

}  // namespace

std::vector<ProcessStacks> CollectStacks(const std::vector<StackTarget>& targets, const StackOptions& options) {
  const char* variable = std::getenv("PATH");
  const std::string path = !options.path.empty() ? options.path
                           : variable != nullptr ? variable
                                                 : "/usr/local/bin:/usr/bin:/bin";
  const Clock::time_point until = Clock::now() + options.all;
  // A process that cannot be looked at (a file system that hangs below /proc/<pid>/root) must not hold up the rest: its
  // thread is left behind with what it needs.
  struct Shared {
    std::mutex mutex;
    std::condition_variable done;
    std::vector<ProcessStacks> found;
    std::vector<bool> ready;
    size_t count = 0;
  };
  auto shared = std::make_shared<Shared>();
  shared->found.resize(targets.size());
  shared->ready.resize(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    std::thread([shared, target = targets[i], options, path, until, i] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
      ProcessStacks process;
      try {
        process = Look(target, options, path, until);
      } catch (const std::exception& error) {
        process.notes.push_back(fmt::format("not examined: {}", error.what()));
      }
      std::lock_guard lock(shared->mutex);
      shared->found[i] = std::move(process);
      shared->ready[i] = true;
      ++shared->count;
      shared->done.notify_all();
    }).detach();
  }
  std::unique_lock lock(shared->mutex);
  shared->done.wait_until(lock, until + milliseconds(1000), [&] { return shared->count == targets.size(); });
  std::vector<ProcessStacks> result = shared->found;
  const std::string host = HostName();
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!shared->ready[i]) {
      result[i] = ReadProcess(targets[i].pid);
      result[i].notes.push_back("its stacks were not to be had in time");
    }
    result[i].rank = targets[i].rank;
    result[i].node = targets[i].node;
    result[i].pid = targets[i].pid;
    result[i].host = host;
  }
  return result;
}

}  // namespace lockstep::hang
