#include "launch/capture.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/fd.h"
#include "base/text.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = 8u << 20;

// Reads what is there; false at the end of the stream.
bool Drain(int fd, std::string* into) {
  char buffer[16384];
  const ssize_t size = ::read(fd, buffer, sizeof buffer);
  if (size < 0) return errno == EINTR || errno == EAGAIN;
  if (into->size() < kMaxOutput) into->append(buffer, static_cast<size_t>(size));
  return size > 0;
}

struct CapturePipe {
  UniqueFd read, write;
};

Result<CapturePipe> MakeCapturePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return Status(Code::kEnvironment, "cannot make a pipe: " + ErrnoText(errno));
  CapturePipe pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
  (void)::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

}  // namespace

Result<Captured> Capture(const std::vector<std::string>& argv, const std::vector<std::string>& env,
                         std::chrono::milliseconds limit) {
  Result<CapturePipe> out = MakeCapturePipe();
  if (!out.ok()) return out.status();
  Result<CapturePipe> err = MakeCapturePipe();
  if (!err.ok()) return err.status();
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));

  SpawnOptions options;
  options.argv = argv;
  options.env = env;
  options.stdin_fd = null.get();
  options.stdout_fd = out->write.get();
  options.stderr_fd = err->write.get();
  Result<Process> process = Spawn(options);
  if (!process.ok()) return process.status();
  out->write.reset();
  err->write.reset();

  Captured captured;
  const Clock::time_point deadline = Clock::now() + limit;
  std::optional<ExitStatus> exit;
  bool out_open = true, err_open = true;
  // The command's own end counts, not the end of its pipes: a daemon started by a profile script may keep them open.
  while (!exit) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      SignalGroup(*process, SIGKILL);
      while (!TryWait(process->pid)) ::usleep(1000);
      return Status(Code::kTimeout,
                    fmt::format("'{}' did not end within {} s{}", Printable(argv[0]), limit.count() / 1000,
                                captured.err.empty() ? "" : ": " + Printable(captured.err)));
    }
    pollfd fds[3] = {{out_open ? out->read.get() : -1, POLLIN, 0},
                     {err_open ? err->read.get() : -1, POLLIN, 0},
                     {process->pidfd.get(), POLLIN, 0}};
    // Without a pidfd (old kernel) the end is looked for every 10 ms.
    const int wait = process->pidfd.valid() ? static_cast<int>(left) : 10;
    if (::poll(fds, 3, wait) < 0 && errno != EINTR) break;
    if (fds[0].revents != 0) out_open = Drain(out->read.get(), &captured.out);
    if (fds[1].revents != 0) err_open = Drain(err->read.get(), &captured.err);
    if (!process->pidfd.valid() || fds[2].revents != 0) exit = TryWait(process->pid);
  }
  const auto rest = [](int fd, std::string* into) {
    size_t before = 0;
    do {
      before = into->size();
    } while (Drain(fd, into) && into->size() != before);
  };
  if (out_open) rest(out->read.get(), &captured.out);
  if (err_open) rest(err->read.get(), &captured.err);
  SignalGroup(*process, SIGKILL);
  captured.exit = exit.value_or(ExitStatus{});
  return captured;
}

}  // namespace lockstep::launch
