// `lockstep stop`: ends a run through its launcher, which stops the ranks on every node as it does for a signal. The
// pid in the lock is only trusted together with host, boot and start time, so that a reused pid is never signalled.
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/clock.h"
#include "base/columns.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "record/reader.h"
#include "record/run_dir.h"

namespace lockstep::cli {
namespace {

using record::LockOwner;
using record::LockState;
using record::LockView;

// One process of somebody else, held by pidfd where the kernel has them, so that its pid cannot change hands between
// the check and the signal.
class Target {
 public:
  explicit Target(const LockOwner& owner)
      : owner_(owner), pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, owner.pid, 0))) {}

  bool Alive() const {
    if (pidfd_) {
      pollfd poll{pidfd_.get(), POLLIN, 0};
      if (::poll(&poll, 1, 0) > 0) return false;
    }
    char state = ProcessState(owner_.pid);
    return state != 0 && state != 'Z' && state != 'X' && ProcessStartTime(owner_.pid) == owner_.start_time;
  }

  Status Signal(int signal) const {
    if (!Alive()) return Status::Ok();
    int result = pidfd_ ? static_cast<int>(::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0))
                        : ::kill(owner_.pid, signal);
    if (result == 0 || errno == ESRCH) return Status::Ok();
    return Status(Code::kEnvironment,
                  fmt::format("cannot signal the launcher, pid {}: {}", owner_.pid, ErrnoText(errno)),
                  errno == EPERM ? "the run belongs to another user: ask its owner, or use that account" : "");
  }

  // True when it ended within the time.
  bool WaitFor(Millis time) const {
    TimePoint end = Now() + time;
    while (Alive()) {
      auto left = std::chrono::ceil<Millis>(end - Now());  // rounded down it would spin through the last one
      if (left.count() <= 0) return false;
      pollfd poll{pidfd_.get(), POLLIN, 0};
      // Without a pidfd there is nothing to wait on; look again soon.
      ::poll(&poll, pidfd_ ? 1 : 0, static_cast<int>(std::min<int64_t>(left.count(), pidfd_ ? 1000 : 50)));
    }
    return true;
  }

 private:
  LockOwner owner_;
  UniqueFd pidfd_;
};

Status NotRunning(const std::string& path) {
  const record::RunSummary run = record::Summarise(path);
  if (run.state == record::RunState::kNodeOnly) {
    return Status(Code::kEnvironment,
                  fmt::format("run '{}' has only files of this node here: {}", Printable(run.name), run.reason),
                  "run `lockstep stop` on node 0");
  }
  return Status(Code::kEnvironment,
                fmt::format("run '{}' has already ended: {}", Printable(run.name), OneLine(run.HowItEnded(), 400)));
}

Status CheckReachable(const std::string& name, const LockView& lock) {
  if (!lock.owner) {
    return Status(Code::kEnvironment, fmt::format("run '{}' is locked, but by whom cannot be read: {}", name, lock.why),
                  "try again in a moment");
  }
  if (lock.owner->IsHere()) return Status::Ok();
  bool same_host = lock.owner->host == HostName();
  return Status(Code::kEnvironment,
                fmt::format("the launcher of run '{}' is elsewhere: {}{}", name, lock.owner->ToString(),
                            same_host ? " (in another container or boot)" : ""),
                fmt::format("run `lockstep stop` on {}", same_host ? "that side" : Printable(lock.owner->host)));
}

// Waits with a line every few seconds, so that a long grace does not look like a hang.
bool WaitAloud(const Target& target, const std::string& name, Millis time) {
  constexpr Millis kEvery{5000};
  TimePoint start = Now();
  TimePoint end = start + time;
  while (Now() < end) {
    auto left = std::chrono::ceil<Millis>(end - Now());
    if (target.WaitFor(std::min(left, kEvery))) return true;
    if (Now() < end) {
      fmt::print(stderr, "lockstep stop: run '{}' is still ending ({} of {})\n", name,
                 FormatDuration(std::chrono::duration_cast<Millis>(Now() - start)), FormatDuration(time));
    }
  }
  return !target.Alive();
}

}  // namespace

int StopMain(int argc, char** argv) {
  Arguments args("Ends a run that is under way: its launcher stops all ranks on all nodes and writes the report.",
                 "stop");
  std::string root = record::kDefaultRoot;
  std::string which;
  std::string grace_text = "60s";
  bool kill = false;
  args.Option("RUN", &which, "name, unique beginning of a name, path, or 'latest'").Required();
  args.Option("--root,--log-dir", &root, "folder that holds the runs").Named("DIR").ShowDefault();
  args.Option("--grace", &grace_text, "how long to wait for it to end, such as 30s or 5m")
      .Named("DURATION")
      .ShowDefault();
  args.Flag("--kill", &kill, "when it has not ended by then, kill the launcher; its guardian kills the ranks");
  args.Footer(
      "Ends with 0 when the run has ended, 3 when it is not running, is on another host, or does not end in time.\n\n"
      "examples:\n"
      "  lockstep stop taehv-20261115-101500-a3f2\n"
      "  lockstep stop latest --grace 5m\n"
      "  lockstep stop latest --grace 30s --kill");
  if (std::optional<int> code = ParseCommand(args, argc, argv)) return *code;
  Result<Millis> grace = ParseDuration(grace_text, BareNumber::kSeconds);
  if (!grace.ok()) return Complain("stop", grace.status().Context("--grace"));

  Result<std::string> path = record::FindRun(root, which);
  if (!path.ok()) return Complain("stop", path.status());
  std::string name = Printable(path->substr(path->rfind('/') + 1));
  LockView lock = record::ReadLock(*path + "/lock");
  if (lock.state != LockState::kLive) return Complain("stop", NotRunning(*path));
  Status reachable = CheckReachable(name, lock);
  if (!reachable.ok()) return Complain("stop", reachable);

  Target target(*lock.owner);
  Status sent = target.Signal(SIGTERM);
  if (!sent.ok()) return Complain("stop", sent.Context(fmt::format("run '{}'", name)));
  fmt::print(stderr, "lockstep stop: asked run '{}' ({}) to end\n", name, lock.owner->ToString());
  bool ended = WaitAloud(target, name, *grace);
  if (!ended && kill) {
    fmt::print(stderr, "lockstep stop: run '{}' did not end in {}: killing it\n", name, FormatDuration(*grace));
    sent = target.Signal(SIGKILL);
    if (!sent.ok()) return Complain("stop", sent.Context(fmt::format("run '{}'", name)));
    ended = target.WaitFor(Millis(10000));
  }
  if (!ended) {
    return Complain("stop",
                    Status(Code::kEnvironment,
                           fmt::format("run '{}' did not end within {}; its launcher, pid {}, still lives", name,
                                       FormatDuration(*grace), lock.owner->pid),
                           kill ? "see what that process waits for: a rank in uninterruptible sleep cannot be killed"
                                : "wait longer with --grace, or end it by force with --kill"));
  }
  record::RunSummary run = record::Summarise(*path);
  fmt::print("run '{}' has ended: {}\n", name, OneLine(run.HowItEnded(), 400));
  return 0;
}

}  // namespace lockstep::cli
