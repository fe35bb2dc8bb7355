#include "launch/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "base/digits.h"
#include "base/files.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

constexpr double kLeftoverSeconds = 5;
constexpr double kFarewellSeconds = 0.3;  // helpers such as Python's resource tracker end by themselves in this time

// A shell that runs the program as its child does not pass signals on; then the whole group must hear them.
bool IsShell(pid_t pid) {
  static const std::set<std::string> kShells = {"sh", "bash", "dash", "zsh", "ksh", "ash", "busybox"};
  char target[256] = {};
  const ssize_t size = readlink(fmt::format("/proc/{}/exe", pid).c_str(), target, sizeof target - 1);
  if (size <= 0) return false;
  const std::string path(target, static_cast<size_t>(size));
  return kShells.count(path.substr(path.rfind('/') + 1)) != 0;
}

// Ctrl-C on a terminal reaches the whole group, so SIGINT does here. Other signals go to the rank alone: its data
// loader workers must not die under a program that is saving its state.
void Deliver(const Process& process, int signal) {
  if (signal == SIGINT || IsShell(process.pid)) {
    SignalGroup(process, signal);
  } else {
    SignalProcess(process, signal);
  }
}

// The rank that a process belongs to, by the environment it inherited; -1: it cannot be read.
int RankOf(pid_t pid) {
  const Result<std::string> environment = ReadFile(fmt::format("/proc/{}/environ", pid), 4 << 20);
  if (!environment.ok()) return -1;
  for (const std::string& entry : Split(*environment, '\0')) {
    if (entry.starts_with("RANK=")) return ParseDigits(std::string_view(entry).substr(5)).value_or(-1);
  }
  return -1;
}

struct Pipe {
  UniqueFd read_end, write_end;
};

Result<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return Status(Code::kEnvironment, "cannot make a pipe for a rank's output: " + ErrnoText(errno),
                  "raise the limit of open files (ulimit -n)");
  }
  Pipe pipe;
  pipe.read_end.reset(fds[0]);
  pipe.write_end.reset(fds[1]);
  return pipe;
}

}  // namespace

Supervisor::Supervisor(Loop& loop, logs::LogPump& pump, Events events)
    : loop_(loop), pump_(pump), events_(std::move(events)) {}

Supervisor::~Supervisor() {
  for (Rank& rank : ranks_) {
    if (rank.process.pidfd) loop_.Unwatch(rank.process.pidfd.get());
  }
  if (kill_timer_ != 0) loop_.Cancel(kill_timer_);
}

Status Supervisor::Start(const std::vector<RankPlan>& plans) {
  ranks_.clear();
  alive_ = 0;
  stopping_ = false;
  for (const RankPlan& plan : plans) {
    auto out = MakePipe();
    auto err = MakePipe();
    Status status = !out.ok() ? out.status() : err.status();
    Rank rank;
    rank.plan = plan;
    if (status.ok()) {
      SpawnOptions options;
      options.argv = plan.argv;
      options.env = plan.env;
      options.workdir = plan.workdir;
      options.cpus = plan.cpus;
      options.stdin_fd = plan.stdin_fd;
      options.stdout_fd = out->write_end.get();
      options.stderr_fd = err->write_end.get();
      auto process = Spawn(options);
      status = process.status();
      if (process.ok()) rank.process = std::move(*process);
    }
    if (!status.ok()) {
      for (Rank& started : ranks_) {
        if (started.process.pidfd) loop_.Unwatch(started.process.pidfd.get());
      }
      ranks_.clear();
      alive_ = 0;
      KillDescendants(kLeftoverSeconds);
      return status.Context(fmt::format("rank {}", plan.rank));
    }
    // A rank that prints nothing has a log too: an empty one. A disk that refuses this is the pump's to report.
    if (!plan.log_path.empty()) UniqueFd(open(plan.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    rank.started = Now();
    rank.alive = true;
    logs::LogStream stream;
    stream.node = plan.node;
    stream.rank = plan.rank;
    stream.local_rank = plan.local_rank;
    stream.attempt = plan.attempt;
    stream.out = std::move(out->read_end);
    stream.err = std::move(err->read_end);
    stream.path = plan.log_path;
    stream.show_out = plan.show_out;
    stream.show_err = plan.show_err;
    pump_.Add(std::move(stream));
    ranks_.push_back(std::move(rank));
    ++alive_;
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].process.pidfd) continue;
    loop_.Watch(ranks_[i].process.pidfd.get(), EPOLLIN, [this, i](uint32_t) { OnExit(i); });
  }
  return {};
}

void Supervisor::OnExit(size_t i) {
  Rank& rank = ranks_[i];
  if (!rank.alive) return;
  const auto status = TryWait(rank.process.pid);
  if (!status) return;
  rank.alive = false;
  rank.succeeded = status->success();
  --alive_;
  if (rank.process.pidfd) {
    loop_.Unwatch(rank.process.pidfd.get());
    rank.process.pidfd.reset();
  }
  Ended ended;
  ended.rank = rank.plan.rank;
  ended.local_rank = rank.plan.local_rank;
  ended.pid = rank.process.pid;
  ended.status = *status;
  ended.uptime = SecondsSince(rank.started);
  ended.after_stop = stopping_;
  ended.killed = rank.overdue && status->signal == SIGKILL;
  events_.ended(ended);
  if (alive_ == 0) Finish();
}

void Supervisor::Reap() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    auto it = std::find_if(ranks_.begin(), ranks_.end(),
                           [&](const Rank& rank) { return rank.alive && rank.process.pid == info.si_pid; });
    if (it != ranks_.end()) {
      OnExit(static_cast<size_t>(it - ranks_.begin()));
    } else {
      waitpid(info.si_pid, nullptr, WNOHANG);  // an adopted orphan
    }
  }
}

void Supervisor::Stop(int signal, Millis grace) {
  if (alive_ == 0) return;
  const TimePoint at = Now() + grace;
  if (stopping_ && at >= kill_at_) return;
  stopping_ = true;
  kill_at_ = at;
  if (kill_timer_ != 0) loop_.Cancel(std::exchange(kill_timer_, 0));
  if (grace <= Millis(0)) return KillAll();
  Forward(signal);
  kill_timer_ = loop_.After(grace, [this] {
    kill_timer_ = 0;
    OnGraceOver();
  });
}

void Supervisor::OnGraceOver() {
  std::vector<int> overdue;
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    rank.overdue = true;
    overdue.push_back(rank.plan.rank);
  }
  KillAll();
  if (events_.overdue) events_.overdue(overdue);
}

void Supervisor::Forward(int signal) {
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    Deliver(rank.process, signal);
    if (stopping_) SignalProcess(rank.process, SIGCONT);  // a stopped process cannot end
  }
}

void Supervisor::KillAll() {
  for (Rank& rank : ranks_) {
    if (!rank.alive) continue;
    SignalGroup(rank.process, SIGKILL);
    SignalProcess(rank.process, SIGKILL);
  }
}

void Supervisor::Finish() {
  if (kill_timer_ != 0) loop_.Cancel(std::exchange(kill_timer_, 0));
  Gone gone;
  gone.left = LeftBySuccess();
  gone.stuck = KillDescendants(kLeftoverSeconds);
  events_.gone(std::move(gone));
}

// What ranks that succeeded have left running. Of ranks that failed or were stopped it is no news.
std::vector<Supervisor::LeftRunning> Supervisor::LeftBySuccess() {
  std::vector<LeftRunning> left;
  const auto succeeded = [](const Rank& rank) { return rank.succeeded; };
  if (stopping_ || std::none_of(ranks_.begin(), ranks_.end(), succeeded)) return left;
  const TimePoint start = Now();
  std::vector<pid_t> pids;
  while (!ReapAll() && !(pids = Descendants(getpid())).empty() && SecondsSince(start) < kFarewellSeconds) usleep(5000);
  for (const pid_t pid : pids) {
    const int number = RankOf(pid);
    const auto rank = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& r) { return r.plan.rank == number; });
    const bool news = rank != ranks_.end() ? rank->succeeded : std::all_of(ranks_.begin(), ranks_.end(), succeeded);
    if (news && ProcessState(pid) != 0) left.push_back({number, pid, ProcessCommand(pid)});
  }
  return left;
}

std::vector<pid_t> Supervisor::pids() const {
  std::vector<pid_t> pids;
  for (const Rank& rank : ranks_) {
    if (rank.alive) pids.push_back(rank.process.pid);
  }
  return pids;
}

}  // namespace lockstep::launch
