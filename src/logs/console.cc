#include "logs/console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/quiet_thread.h"

namespace lockstep::logs {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = Console::TimePoint;

constexpr size_t kSmall = 4096;              // a batch of a rank that does not flood
constexpr size_t kSmallReserve = 256 << 10;  // room kept for those when another rank fills the queue
constexpr size_t kSayReserve = 512 << 10;
constexpr size_t kPipeChunk = 4096;  // poll() promises that a pipe takes a page without blocking, not more
constexpr size_t kFileChunk = 256 << 10;
constexpr size_t kKeepCapacity = 256 << 10;

constexpr std::string_view kClearLine = "\r\x1b[K";

enum class Kind { kFile, kPipe, kTerminal };

struct Bar {
  int source = 0;
  std::string text;
  TimePoint updated{};
};

// One descriptor, or both when they lead to the same place: then one order of lines holds for both.
struct Lane {
  int fd = -1;
  Kind kind = Kind::kFile;
  bool terminal = false;
  size_t pipe_size = 0;

  std::string pending;            // whole lines, waiting
  size_t in_flight = 0;           // bytes the thread has taken and not yet written
  bool closed = false;            // the descriptor failed
  std::vector<Bar> bars;          // few: one per rank at most
  std::string status;             // wanted
  std::string status_shown;       // last one printed as a line
  TimePoint status_at{};          // when
  bool redraw = false;            // the transient line is not what it should be
  TimePoint redraw_at{};          // not before
  std::vector<uint64_t> skipped;  // by source, not yet said

  size_t load() const { return pending.size() + in_flight; }
};

struct Source {
  int rank = 0;
  std::string file;
};

Kind KindOf(int fd, bool terminal) {
  struct stat st{};
  if (terminal) return Kind::kTerminal;
  if (::fstat(fd, &st) != 0) return Kind::kFile;
  if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) return Kind::kPipe;
  return S_ISCHR(st.st_mode) && ::isatty(fd) == 1 ? Kind::kTerminal : Kind::kFile;
}

bool SamePlace(int a, int b) {
  struct stat sa{}, sb{};
  if (::fstat(a, &sa) != 0 || ::fstat(b, &sb) != 0) return false;
  return sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

}  // namespace

struct Console::State {
  ConsoleOptions options;
  mutable std::mutex mutex;
  std::condition_variable drained;
  UniqueFd wake;
  bool asleep = false;
  bool stop = false, exited = false;
  int lanes = 2;
  Lane lane[2];
  std::vector<Source> sources;
  uint64_t total_skipped = 0;

  Lane& For(bool err) { return lane[err && lanes == 2 ? 1 : 0]; }

  void Wake() {
    if (!asleep) return;
    asleep = false;
    uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
  }

  // Says what was skipped of one source, where it was skipped.
  void Note(Lane& to, size_t source) {
    uint64_t lines = std::exchange(to.skipped[source], 0);
    if (lines == 0) return;
    const Source& from = sources[source];
    to.pending +=
        fmt::format("lockstep: console was slow: {} line{} of rank {} not shown; {}\n", lines, lines == 1 ? "" : "s",
                    from.rank, from.file.empty() ? "they are in no file" : "they are in " + from.file);
  }

  void Skip(Lane& of, size_t source, uint64_t lines) {
    of.skipped[source] += lines;
    total_skipped += lines;
  }

  std::string Transient(const Lane& of, TimePoint now) const;
  void Run();
  bool Step(Lane& of, std::string& bytes, size_t& at);
};

// The freshest claim to the last line of the screen: the lowest rank with a living bar, else the status.
std::string Console::State::Transient(const Lane& of, TimePoint now) const {
  const Bar* best = nullptr;
  for (const Bar& bar : of.bars) {
    if (bar.text.empty() || now - bar.updated > options.bar_fresh) continue;
    if (best == nullptr || sources[bar.source].rank < sources[best->source].rank) best = &bar;
  }
  std::string text = best != nullptr ? best->text : of.status;
  if (text.empty()) return text;
  winsize size{};
  size_t width = ::ioctl(of.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  // Cut by visible characters, so the line never wraps; escape sequences take no room and are closed at the end.
  size_t seen = 0;
  bool escape = false, coloured = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (escape) {
      if (c >= '@' && c <= '~' && c != '[') escape = false;
      continue;
    }
    if (c == 0x1b) {
      escape = coloured = true;
    } else if ((c & 0xC0) != 0x80 && ++seen > width) {
      text.resize(i);
      break;
    }
  }
  if (coloured) text += "\x1b[0m";
  return text;
}

// Writes one chunk of `bytes` without the lock. False if the descriptor is dead.
bool Console::State::Step(Lane& of, std::string& bytes, size_t& at) {
  size_t n = bytes.size() - at;
  if (of.kind == Kind::kPipe) {
    int queued = 0;
    size_t room = kPipeChunk;
    if (of.pipe_size > kPipeChunk && ::ioctl(of.fd, FIONREAD, &queued) == 0 && queued == 0) room = of.pipe_size;
    if (n > room) {
      n = room;
      const void* eol = ::memrchr(bytes.data() + at, '\n', n);
      if (eol != nullptr) n = static_cast<size_t>(static_cast<const char*>(eol) - (bytes.data() + at)) + 1;
    }
  } else {
    n = std::min(n, of.kind == Kind::kTerminal ? kPipeChunk : kFileChunk);
  }
  ssize_t wrote = ::write(of.fd, bytes.data() + at, n);
  if (wrote < 0) {
    if (errno == EINTR || errno == EAGAIN) return true;
    if (of.kind != Kind::kFile || errno == EBADF) return false;
    at = bytes.size();  // a file on a full disk: these lines are gone, the next may fit
    return true;
  }
  at += static_cast<size_t>(wrote);
  return true;
}

void Console::State::Run() {
  struct Own {
    std::string bytes;
    size_t at = 0;
    bool drawn = false;  // a transient line is on the screen
  } own[2];
  std::unique_lock lock(mutex);
  while (!stop) {
    TimePoint now = Clock::now();
    TimePoint next = TimePoint::max();
    for (int i = 0; i < lanes; ++i) {
      Lane& l = lane[i];
      Own& o = own[i];
      if (l.in_flight > 0) continue;
      if (l.pending.empty()) {
        for (size_t s = 0; s < l.skipped.size(); ++s) Note(l, s);
      }
      if (!l.terminal && l.status != l.status_shown) {
        if (l.status.empty()) {
          l.status_shown.clear();
        } else if (now >= l.status_at + options.status_every) {
          l.pending += l.status + "\n";
          l.status_shown = l.status;
          l.status_at = now;
        } else {
          next = std::min(next, l.status_at + options.status_every);
        }
      }
      o.bytes.clear();
      o.at = 0;
      if (!l.pending.empty()) {
        if (l.terminal && o.drawn) {
          o.bytes = kClearLine;
          o.bytes += l.pending;
          l.pending.clear();
          o.drawn = false;
          l.redraw = true;
        } else {
          o.bytes.swap(l.pending);
        }
      } else if (l.terminal && l.redraw) {
        if (now >= l.redraw_at) {
          std::string text = Transient(l, now);
          if (!text.empty() || o.drawn) o.bytes.assign(kClearLine).append(text);
          o.drawn = !text.empty();
          l.redraw = false;
          l.redraw_at = now + options.redraw;
          // A bar that goes stale gives way.
          if (o.drawn && !l.bars.empty()) next = std::min(next, now + options.bar_fresh + options.redraw);
        } else {
          next = std::min(next, l.redraw_at);
        }
      } else if (l.terminal && o.drawn && !l.bars.empty()) {
        if (now >= l.redraw_at + options.bar_fresh) {
          l.redraw = true;
          next = now;
        } else {
          next = std::min(next, l.redraw_at + options.bar_fresh);
        }
      }
      l.in_flight = o.bytes.size();
      if (o.bytes.capacity() > kKeepCapacity && o.bytes.empty()) o.bytes.shrink_to_fit();
      if (l.pending.capacity() > kKeepCapacity && l.pending.empty()) l.pending.shrink_to_fit();
    }

    pollfd fds[3] = {{wake.get(), POLLIN, 0}, {-1, POLLOUT, 0}, {-1, POLLOUT, 0}};
    bool idle = true;
    for (int i = 0; i < lanes; ++i) {
      if (lane[i].in_flight > 0) {
        fds[i + 1].fd = lane[i].fd;
        idle = false;
      }
    }
    if (idle) drained.notify_all();
    asleep = true;
    lock.unlock();
    int timeout = -1;
    if (next != TimePoint::max()) {
      auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count() + 1;
      timeout = static_cast<int>(std::clamp<long long>(wait, 0, 60000));
    }
    ::poll(fds, 3, timeout);
    if ((fds[0].revents & POLLIN) != 0) {
      uint64_t ignored = 0;
      (void)!::read(wake.get(), &ignored, sizeof ignored);
    }
    bool alive[2] = {true, true};
    for (int i = 0; i < lanes; ++i) {
      if (fds[i + 1].fd >= 0 && fds[i + 1].revents != 0) {
        alive[i] = (fds[i + 1].revents & POLLNVAL) == 0 && Step(lane[i], own[i].bytes, own[i].at);
      }
    }
    lock.lock();
    asleep = false;
    for (int i = 0; i < lanes; ++i) {
      if (fds[i + 1].fd < 0) continue;
      lane[i].in_flight = own[i].bytes.size() - own[i].at;
      if (!alive[i]) {
        lane[i].closed = true;
        lane[i].in_flight = 0;
        lane[i].pending.clear();
      }
    }
  }
  exited = true;
  drained.notify_all();
}

Console::Console(ConsoleOptions options) : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.options = options;
  s.wake.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  s.lanes = SamePlace(options.fd[0], options.fd[1]) ? 1 : 2;
  for (int i = 0; i < 2; ++i) {
    Lane& l = s.lane[i];
    l.fd = options.fd[i];
    l.terminal = options.terminal[i];
    l.kind = KindOf(l.fd, l.terminal);
    if (l.kind == Kind::kPipe) {
      int size = ::fcntl(l.fd, F_GETPIPE_SZ);
      l.pipe_size = size > 0 ? static_cast<size_t>(size) : 0;
    }
    l.status_at = Clock::now() - options.status_every;
  }
  StartQuietThread([state = state_] { state->Run(); }).detach();
}

Console::~Console() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->asleep = true;
  state_->Wake();
  // Normally at once; a write that blocks although poll() said it would not leaves the thread behind.
  state_->drained.wait_for(lock, std::chrono::milliseconds(200), [&] { return state_->exited; });
}

int Console::AddSource(int rank, std::string file) {
  std::lock_guard lock(state_->mutex);
  state_->sources.push_back({rank, std::move(file)});
  for (Lane& l : state_->lane) l.skipped.push_back(0);
  return static_cast<int>(state_->sources.size()) - 1;
}

void Console::Write(int source, bool err, std::string_view lines, uint64_t count) {
  if (lines.empty()) return;
  std::lock_guard lock(state_->mutex);
  Lane& l = state_->For(err);
  if (l.closed) return;
  const size_t from = static_cast<size_t>(source);
  const size_t limit = state_->options.queue;
  // A rank that has overrun the queue comes back when half of it is written: few long gaps instead of many short ones.
  // One that has not is let in by the reserve, however much the others print.
  const size_t room = l.skipped[from] > 0 ? limit / 2 : lines.size() <= kSmall ? limit + kSmallReserve : limit;
  if (l.load() + lines.size() > room && l.load() > 0) {
    state_->Skip(l, from, count);
    return;
  }
  state_->Note(l, from);
  l.pending.append(lines);
  state_->Wake();
}

void Console::SetBar(int source, bool err, std::string_view text) {
  std::lock_guard lock(state_->mutex);
  Lane& l = state_->For(err);
  if (!l.terminal || l.closed) return;
  auto bar = std::find_if(l.bars.begin(), l.bars.end(), [&](const Bar& b) { return b.source == source; });
  if (bar == l.bars.end()) {
    if (text.empty()) return;
    bar = l.bars.insert(l.bars.end(), Bar{source, {}, {}});
  }
  if (text.empty()) {
    l.bars.erase(bar);
  } else {
    bar->text.assign(text);
    bar->updated = Clock::now();
  }
  l.redraw = true;
  state_->Wake();
}

void Console::Say(std::string_view lines, bool err) {
  std::lock_guard lock(state_->mutex);
  Lane& l = state_->For(err);
  if (l.closed || l.load() + lines.size() > state_->options.queue + kSayReserve) return;
  l.pending.append(lines);
  if (lines.empty() || lines.back() != '\n') l.pending += '\n';
  state_->Wake();
}

void Console::SetStatus(std::string_view text) {
  std::lock_guard lock(state_->mutex);
  Lane& l = state_->For(true);
  if (l.closed || l.status == text) return;
  l.status.assign(text);
  l.redraw = true;
  state_->Wake();
}

bool Console::Flush(TimePoint deadline) {
  std::unique_lock lock(state_->mutex);
  auto empty = [&] {
    for (int i = 0; i < state_->lanes; ++i) {
      const Lane& l = state_->lane[i];
      if (l.closed) continue;
      if (l.terminal && l.redraw) return false;
      if (l.load() > 0 || std::any_of(l.skipped.begin(), l.skipped.end(), [](uint64_t n) { return n > 0; }))
        return false;
    }
    return true;
  };
  for (int i = 0; i < state_->lanes; ++i) {
    Lane& l = state_->lane[i];
    // Nothing transient stays on the screen.
    l.bars.clear();
    l.status.clear();
    l.redraw = true;
    l.redraw_at = TimePoint{};
  }
  state_->asleep = true;
  state_->Wake();
  if (state_->drained.wait_until(lock, deadline, empty)) return true;
  for (int i = 0; i < state_->lanes; ++i) {
    Lane& l = state_->lane[i];
    state_->total_skipped += static_cast<uint64_t>(std::count(l.pending.begin(), l.pending.end(), '\n'));
    l.pending.clear();
    std::fill(l.skipped.begin(), l.skipped.end(), 0);
  }
  return false;
}

uint64_t Console::skipped() const {
  std::lock_guard lock(state_->mutex);
  return state_->total_skipped;
}

bool Console::closed() const {
  std::lock_guard lock(state_->mutex);
  return state_->lane[0].closed || (state_->lanes == 2 && state_->lane[1].closed);
}

}  // namespace lockstep::logs
