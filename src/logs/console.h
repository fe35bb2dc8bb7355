// The only thing that writes to the launcher's stdout and stderr: whole lines, in the order they came, from a bounded
// queue, by a thread of its own. A console that is slow or stuck costs its own lines (counted, and said in one line
// when it recovers), never the caller's time. On a terminal the last line of the screen is transient: a progress bar of
// a rank, or the status.
//
// All calls from any thread; none blocks on the console except Flush, which has a deadline. The flags of the
// descriptors are never changed, because other processes share them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::logs {

struct ConsoleOptions {
  int fd[2] = {1, 2};
  bool terminal[2] = {false, false};
  size_t queue = 2 << 20;                        // bytes waiting per descriptor before lines are skipped
  std::chrono::milliseconds redraw{100};         // transient line, at most once in this time
  std::chrono::milliseconds bar_fresh{3000};     // a bar not updated for so long gives way to the status
  std::chrono::milliseconds status_every{5000};  // no terminal: status as a line, at most once in this time
};

class Console {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Console(ConsoleOptions options);
  // Drops what is queued; call Flush before.
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Someone whose lines may be skipped; `file` is where they can be read instead. Returns its number.
  int AddSource(int rank, std::string file);

  // `lines` is `count` whole lines with their newlines. Accepted or skipped as a whole.
  void Write(int source, bool err, std::string_view lines, uint64_t count);

  // The source's transient line on a terminal; ignored on anything else. Empty: none.
  void SetBar(int source, bool err, std::string_view text);

  // The launcher's own words; accepted also when ranks' lines are skipped, up to a reserve.
  void Say(std::string_view lines, bool err);

  void SetStatus(std::string_view text);

  // Waits until everything is written or the deadline; what is left then is dropped. False if something was.
  bool Flush(TimePoint deadline);

  uint64_t skipped() const;
  bool closed() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::logs
