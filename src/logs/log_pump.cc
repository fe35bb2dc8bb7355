#include "logs/log_pump.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/quiet_thread.h"
#include "logs/console.h"
#include "logs/log_pace.h"
#include "logs/log_tail.h"
#include "logs/log_view.h"
#include "logs/log_writer.h"

namespace lockstep::logs {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = LogPump::TimePoint;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kPipeSize = 1 << 20;
constexpr size_t kHoldMost = 64 << 10;   // an unfinished line longer than this goes to the file as it is
constexpr size_t kReadLeast = 32 << 10;  // worth a system call
constexpr size_t kTurn = 1 << 20;        // bytes from one stream before the others have their turn
constexpr size_t kDrainMost = 4 << 20;   // bytes taken from a pipe that is being cut off

constexpr milliseconds kDrainWait{250};  // the reader answers in far less unless a disk hangs

// Looking for progress in a flood: enough lines to see any step counter, few enough to cost nothing.
constexpr int kLinesPerFeed = 50;
constexpr int kLinesPerSecond = 5000;

// What is remembered of a rank; under the pump's lock.
struct Memory {
  int attempt = 0;
  bool finished = false;
  LogTail tail;
  record::ProgressTracker tracker[2];
  int budget = 0;
  TimePoint budget_at{};
  uint64_t bytes = 0;
  TimePoint last{};
};

struct Rank;

struct Stream {
  Rank* rank = nullptr;
  int index = 0;  // 0 out, 1 err
  UniqueFd fd;
  size_t pipe_size = 65536;
  std::string held;  // an unfinished line, not yet in the file
  TimePoint held_since{};
  std::optional<LogView> view;
};

struct Rank {
  int attempt = 0;
  std::shared_ptr<Memory> memory;
  std::shared_ptr<LogFile> file;
  Stream stream[2];
  bool closed = false;
};

}  // namespace

struct LogPump::Impl {
  explicit Impl(LogPumpOptions o)
      : options(o),
        console({.fd = {o.console_out_fd, o.console_err_fd},
                 .terminal = {o.terminal_out, o.terminal_err},
                 .queue = o.console_queue}),
        writer(o.rotation, o.disk_stall) {}

  const LogPumpOptions options;
  Console console;
  LogWriter writer;  // its reader side is the reader thread's
  UniqueFd epoll, wake;
  std::atomic<uint64_t> captured{0};

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::vector<std::shared_ptr<Memory>> adopted;   // parallel to `added`
  std::vector<LogStream> added;                   // for the reader to take
  std::vector<int> cut;                           // attempts to be cut off
  std::map<int, std::shared_ptr<Memory>> memory;  // by rank, latest attempt
  std::multimap<int, std::shared_ptr<Memory>> by_attempt;
  uint64_t closes = 0;                                // files the reader has given to the writer for closing
  mutable uint64_t drain_wanted = 0, drain_done = 0;  // tickets: read all that the pipes hold now
  bool stop = false;

  std::vector<std::unique_ptr<Rank>> ranks;  // reader's
  std::string scratch;                       // reader's; one for all views
  std::thread reader;

  void Wake() const {
    uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
  }
  void Run();
  void TakeCommands();
  void Adopt(LogStream from, std::shared_ptr<Memory> to);
  size_t Read(Stream& from, size_t most);
  void Remember(Stream& from, std::string_view data, TimePoint now);
  void WriteHeld(Stream& of);
  void End(Stream& of);
  void CloseIfDone(Rank& rank);
  int FlushHeld();
};

LogPumpOptions LogPumpOptions::ForThisProcess(LogRotation rotation) {
  LogPumpOptions options;
  options.rotation = rotation;
  const char* term = std::getenv("TERM");
  const char* no_colour = std::getenv("NO_COLOR");
  const bool able = term != nullptr && std::strcmp(term, "dumb") != 0;
  const bool colour = able && (no_colour == nullptr || *no_colour == '\0');
  options.terminal_out = able && ::isatty(1) == 1;
  options.terminal_err = able && ::isatty(2) == 1;
  options.colour_out = colour && options.terminal_out;
  options.colour_err = colour && options.terminal_err;
  return options;
}

// --- reader thread
// -----------------------------------------------------------------------------------------------------

void LogPump::Impl::Adopt(LogStream from, std::shared_ptr<Memory> to) {
  auto rank = std::make_unique<Rank>();
  rank->attempt = from.attempt;
  rank->memory = std::move(to);
  const int source = console.AddSource(from.rank, from.path);
  if (!from.path.empty()) rank->file = writer.Open(from.path);
  UniqueFd* fds[2] = {&from.out, &from.err};
  const bool show[2] = {from.show_out, from.show_err};
  const bool terminal[2] = {options.terminal_out, options.terminal_err};
  const bool colour[2] = {options.colour_out, options.colour_err};
  for (int i = 0; i < 2; ++i) {
    Stream& s = rank->stream[i];
    s.rank = rank.get();
    s.index = i;
    s.fd = std::move(*fds[i]);
    if (show[i]) {
      s.view.emplace(&console, &scratch, source,
                     LogView::Look{.node = from.node,
                                   .rank = from.rank,
                                   .err = i == 1,
                                   .terminal = terminal[i],
                                   .colour = colour[i],
                                   .bar_interval = options.bar_interval});
    }
    if (!s.fd) continue;
    // Only the read end's description is ours, and O_NONBLOCK belongs to it alone.
    ::fcntl(s.fd.get(), F_SETFL, ::fcntl(s.fd.get(), F_GETFL) | O_NONBLOCK);
    for (int size = kPipeSize; size > 65536 && ::fcntl(s.fd.get(), F_SETPIPE_SZ, size) < 0; size /= 4) {
    }
    if (int size = ::fcntl(s.fd.get(), F_GETPIPE_SZ); size > 0) s.pipe_size = static_cast<size_t>(size);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &s}};
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, s.fd.get(), &event) != 0) s.fd.reset();
  }
  ranks.push_back(std::move(rank));
  CloseIfDone(*ranks.back());
}

void LogPump::Impl::Remember(Stream& from, std::string_view data, TimePoint now) {
  Memory& to = *from.rank->memory;
  std::lock_guard lock(mutex);
  to.bytes += data.size();
  to.last = now;
  if (now - to.budget_at >= std::chrono::seconds(1)) {
    to.budget_at = now;
    to.budget = kLinesPerSecond;
  }
  const int lines = std::min(kLinesPerFeed, to.budget);
  record::ProgressTracker& tracker = to.tracker[from.index];
  to.tail.Feed(from.index, data, lines, [&](std::string_view line) {
    --to.budget;
    tracker.Feed(line, now);
  });
  // A bar's present state has no terminator yet; programs write it in one piece.
  if (const LineState& line = to.tail.Partial(from.index); line.bar() && to.budget > 0) {
    --to.budget;
    tracker.Feed(line.text(), now);
  }
}

void LogPump::Impl::WriteHeld(Stream& of) {
  if (of.held.empty()) return;
  LogWriter::Space space = writer.Take(of.held.size());
  std::memcpy(space.data, of.held.data(), of.held.size());
  writer.Commit(of.rank->file, of.held.size());
  of.held.clear();
}

// Reads what the pipe holds, at most about `most` bytes; returns how many.
size_t LogPump::Impl::Read(Stream& from, size_t most) {
  size_t total = 0;
  while (from.fd && total < most) {
    LogWriter::Space space = writer.Take(from.held.size() + kReadLeast);
    const size_t held = from.held.size();
    const size_t room = space.size - held;
    char* fresh = space.data + held;
    ssize_t n = ::read(from.fd.get(), fresh, room);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      End(from);
      break;
    }
    const TimePoint now = Clock::now();
    const std::string_view data(fresh, static_cast<size_t>(n));
    total += data.size();
    // Whole lines go to the file, so that the other stream's lines fall between them.
    const void* last = ::memrchr(fresh, '\n', data.size());
    size_t whole = last != nullptr ? held + static_cast<size_t>(static_cast<const char*>(last) - fresh) + 1 : 0;
    if (held + data.size() - whole > kHoldMost) whole = held + data.size();
    if (whole > 0 && held > 0) std::memcpy(space.data, from.held.data(), held);

    Remember(from, data, now);
    if (from.view) from.view->Feed(data, now);

    if (whole > 0) {
      from.held.assign(space.data + whole, held + data.size() - whole);
      from.held_since = now;
      writer.Commit(from.rank->file, whole);
    } else {
      if (held == 0) from.held_since = now;
      from.held.append(data);
    }
    if (data.size() < room) break;
  }
  if (total > 0) captured.fetch_add(total, std::memory_order_relaxed);
  return total;
}

void LogPump::Impl::End(Stream& of) {
  if (!of.fd) return;
  // By hand: a child between fork and exec may still hold a copy, which would keep the entry alive.
  ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, of.fd.get(), nullptr);
  of.fd.reset();
  WriteHeld(of);
  if (of.view) of.view->End(Clock::now());
  CloseIfDone(*of.rank);
}

void LogPump::Impl::CloseIfDone(Rank& rank) {
  if (rank.closed || rank.stream[0].fd || rank.stream[1].fd) return;
  rank.closed = true;
  writer.CloseFile(rank.file);
  writer.Submit();
  std::lock_guard lock(mutex);
  if (rank.file != nullptr) ++closes;
  rank.memory->finished = true;
  changed.notify_all();
}

// Writes out lines that stayed unfinished too long; returns milliseconds until the next is due, -1 if none is held.
int LogPump::Impl::FlushHeld() {
  const TimePoint now = Clock::now();
  int64_t next = -1;
  for (auto& rank : ranks) {
    for (Stream& s : rank->stream) {
      if (s.held.empty()) continue;
      const auto left = std::chrono::duration_cast<milliseconds>(s.held_since + options.hold_partial - now).count();
      if (left <= 0) {
        WriteHeld(s);
      } else if (next < 0 || left < next) {
        next = left;
      }
    }
  }
  return next < 0 ? -1 : static_cast<int>(next) + 1;
}

void LogPump::Impl::TakeCommands() {
  std::vector<LogStream> streams;
  std::vector<std::shared_ptr<Memory>> memories;
  std::vector<int> attempts;
  uint64_t drain = 0;
  {
    std::lock_guard lock(mutex);
    if (drain_wanted != drain_done) drain = drain_wanted;
    streams.swap(added);
    memories.swap(adopted);
    attempts.swap(cut);
  }
  for (size_t i = 0; i < streams.size(); ++i) Adopt(std::move(streams[i]), std::move(memories[i]));
  if (drain != 0) {
    for (auto& rank : ranks) {
      for (Stream& s : rank->stream) Read(s, kDrainMost);
    }
    std::lock_guard lock(mutex);
    drain_done = drain;
    changed.notify_all();
  }
  for (int attempt : attempts) {
    for (auto& rank : ranks) {
      if (rank->attempt != attempt) continue;
      for (Stream& s : rank->stream) {
        Read(s, kDrainMost);
        End(s);
      }
    }
  }
  std::erase_if(ranks, [](const std::unique_ptr<Rank>& rank) { return rank->closed; });
}

void LogPump::Impl::Run() {
  TimePoint last{};
  LogPace pace;
  for (;;) {
    TakeCommands();
    {
      std::lock_guard lock(mutex);
      if (stop) return;
    }
    const int timeout = FlushHeld();
    writer.Submit();
    epoll_event events[64];
    const int n = ::epoll_wait(epoll.get(), events, 64, timeout);
    LogPace::Fill fill;
    bool any = false;
    for (int i = 0; i < n; ++i) {
      if (events[i].data.ptr == nullptr) {
        uint64_t ignored = 0;
        (void)!::read(wake.get(), &ignored, sizeof ignored);
        continue;
      }
      Stream& s = *static_cast<Stream*>(events[i].data.ptr);
      const size_t size = s.pipe_size;
      size_t& fullest = s.view ? fill.shown : fill.stored;
      fullest = std::max(fullest, Read(s, kTurn) * LogPace::kFull / size);
      any = true;
    }
    writer.Submit();
    if (!any) continue;

    const TimePoint now = Clock::now();
    const auto since = std::chrono::duration_cast<microseconds>(now - last);
    last = now;
    const microseconds pause = pace.Next(fill, since);
    if (pause.count() == 0) continue;
    pollfd fd{wake.get(), POLLIN, 0};
    timespec time{0, pause.count() * 1000};
    ::ppoll(&fd, 1, &time, nullptr);
  }
}

// --- the supervisor's side
// ---------------------------------------------------------------------------------------------

LogPump::LogPump(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<LogPump>> LogPump::Start(LogPumpOptions options) {
  auto impl = std::make_unique<Impl>(options);
  impl->epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  impl->wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!impl->epoll || !impl->wake || ::epoll_ctl(impl->epoll.get(), EPOLL_CTL_ADD, impl->wake.get(), &event) != 0) {
    return Status(Code::kEnvironment, "log capture: cannot create its event descriptors: " + ErrnoText(errno),
                  "raise the limit of open files (ulimit -n)");
  }
  impl->reader = StartQuietThread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<LogPump>(new LogPump(std::move(impl)));
}

LogPump::~LogPump() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->Wake();
  impl_->reader.join();
}

void LogPump::Add(LogStream stream) {
  auto memory = std::make_shared<Memory>();
  memory->attempt = stream.attempt;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->memory[stream.rank] = memory;
    impl_->by_attempt.emplace(stream.attempt, memory);
    impl_->added.push_back(std::move(stream));
    impl_->adopted.push_back(std::move(memory));
  }
  impl_->Wake();
}

bool LogPump::Finished(int rank) const {
  std::lock_guard lock(impl_->mutex);
  auto it = impl_->memory.find(rank);
  return it == impl_->memory.end() || it->second->finished;
}

bool LogPump::Detach(int attempt, TimePoint deadline) {
  std::unique_lock lock(impl_->mutex);
  auto finished = [&] {
    auto [begin, end] = impl_->by_attempt.equal_range(attempt);
    return std::all_of(begin, end, [](const auto& entry) { return entry.second->finished; });
  };
  const bool by_itself = impl_->changed.wait_until(lock, deadline, finished);
  // The reader answers at once unless a disk hangs, and then after the stall limit.
  const TimePoint last = std::max(deadline, Clock::now()) + impl_->options.disk_stall + std::chrono::seconds(1);
  if (!by_itself) {
    impl_->cut.push_back(attempt);
    impl_->Wake();
    impl_->changed.wait_until(lock, last, finished);
  }
  impl_->by_attempt.erase(attempt);
  const uint64_t closes = impl_->closes;
  lock.unlock();
  impl_->writer.WaitClosed(closes, last);
  return by_itself;
}

std::string LogPump::Tail(int rank, size_t max_lines, size_t max_bytes) const {
  LogTail tail;
  {
    std::unique_lock lock(impl_->mutex);
    auto it = impl_->memory.find(rank);
    if (it == impl_->memory.end()) return "";
    const std::shared_ptr<Memory> memory = it->second;
    if (!memory->finished) {
      const uint64_t ticket = ++impl_->drain_wanted;
      impl_->Wake();
      impl_->changed.wait_for(lock, kDrainWait, [&] { return impl_->drain_done >= ticket; });
    }
    tail = memory->tail;
  }
  return tail.Text(max_lines, max_bytes);
}

record::ProgressState LogPump::Progress(int rank) const {
  std::lock_guard lock(impl_->mutex);
  auto it = impl_->memory.find(rank);
  if (it == impl_->memory.end()) return {};
  const record::ProgressState& out = it->second->tracker[0].state();
  const record::ProgressState& err = it->second->tracker[1].state();
  const bool from_out = out.any() && (!err.any() || out.last >= err.last);
  record::ProgressState state = from_out ? out : err;
  const record::ProgressState& other = from_out ? err : out;
  // A Trainer line on one stream has no step; the bar on the other has.
  if (!state.step && other.step) {
    state.step = other.step;
    state.total = other.total;
    state.measured = other.measured;
  }
  if (!state.seconds_per_step) state.seconds_per_step = other.seconds_per_step;
  state.marks = out.marks + err.marks;
  return state;
}

LogPump::Activity LogPump::LastActivity(int rank) const {
  std::lock_guard lock(impl_->mutex);
  auto it = impl_->memory.find(rank);
  if (it == impl_->memory.end()) return {};
  return {it->second->bytes, it->second->last, it->second->tail.Text(1, 1024)};
}

void LogPump::Say(std::string_view line, bool err) { impl_->console.Say(line, err); }

void LogPump::SetStatus(std::string_view line) { impl_->console.SetStatus(line); }

LogStats LogPump::Stats() const {
  const LogWriter::Totals totals = impl_->writer.totals();
  LogStats stats;
  stats.bytes_captured = impl_->captured.load(std::memory_order_relaxed);
  stats.bytes_stored = totals.stored;
  stats.bytes_lost = totals.lost;
  stats.lost_errno = totals.lost > 0 ? totals.first_errno : 0;
  stats.lost_path = totals.first_path;
  stats.rotations = totals.rotations;
  stats.console_lines_skipped = impl_->console.skipped();
  stats.console_closed = impl_->console.closed();
  return stats;
}

bool LogPump::FlushConsole(TimePoint deadline) { return impl_->console.Flush(deadline); }

}  // namespace lockstep::logs
