// LogPump captures what ranks print: it drains their pipes, writes one file per rank and attempt, shows the chosen
// ranks on the console, and remembers each rank's last lines and its progress. Its promise to a rank is that printing
// never waits for a console, and never fails because a disk is full: what cannot be shown or stored is counted, and
// said.
//
// Three threads of its own, all signals blocked: the reader (pipes -> memory), the file writer (memory -> disk) and the
// console writer (memory -> terminal). No lock is held across a system call that can block. The supervisor's thread
// creates, calls and destroys the pump; Say, Tail, Progress and Stats may be called from any thread.
//
//   auto pump = LogPump::Start(LogPumpOptions::ForThisProcess(options.rotation));
//   (*pump)->Add({.node = 0, .rank = 3, .out = std::move(out_read_end), .err = std::move(err_read_end), .path = file});
//   ... the rank runs and ends ...
//   (*pump)->Detach(attempt, Now() + 2s);        // a grandchild may hold the pipe open for ever
//   std::string last_words = (*pump)->Tail(3);
//   (*pump)->FlushConsole(Now() + 2s);
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "logs/log_rotation.h"
#include "record/progress_tracker.h"

namespace lockstep::logs {

// One rank of one attempt. Either pipe may be missing (not valid): then that stream is at its end from the start.
struct LogStream {
  int node = 0;
  int rank = 0;
  int local_rank = 0;
  int attempt = 0;
  UniqueFd out, err;     // read ends
  std::string path;      // the file; folders are made as needed. Empty: no file
  bool show_out = true;  // on the console
  bool show_err = true;
};

struct LogPumpOptions {
  LogRotation rotation;
  int console_out_fd = 1;  // not owned, never closed, their flags are never changed
  int console_err_fd = 2;
  bool terminal_out = false;  // rewrite progress bars and the status in place
  bool terminal_err = false;
  bool colour_out = false;  // colour the prefix of a line
  bool colour_err = false;
  std::chrono::milliseconds bar_interval{
      5000};  // console is no terminal: at most one bar state per stream in this time
  std::chrono::milliseconds hold_partial{1000};  // an unfinished line reaches the file after this time
  std::chrono::milliseconds disk_stall{5000};    // a disk that takes no byte for so long is treated as full
  size_t console_queue = 2 << 20;                // bytes waiting for a slow console before lines are skipped

  // Asks fd 1 and 2 whether they are terminals; honours NO_COLOR and TERM=dumb.
  static LogPumpOptions ForThisProcess(LogRotation rotation);
};

struct LogStats {
  uint64_t bytes_captured = 0;  // read from pipes
  uint64_t bytes_stored = 0;    // in files, including rotated and deleted ones
  uint64_t bytes_lost = 0;      // not in any file, because writing failed
  int lost_errno = 0;           // of the first loss
  std::string lost_path;
  uint64_t rotations = 0;
  uint64_t console_lines_skipped = 0;  // because the console was slow
  bool console_closed = false;         // a console descriptor failed (reader gone): nothing more is shown on it
};

class LogPump {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static Result<std::unique_ptr<LogPump>> Start(LogPumpOptions options);
  // Stops at once: what the pipes still hold is dropped, files are closed. Call Detach and FlushConsole before.
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  // Takes the pipes. A rank added again (next attempt) starts with an empty tail and no progress.
  void Add(LogStream stream);

  // Both streams at their end or detached. True for a rank never added.
  bool Finished(int rank) const;

  // Waits until every stream of the attempt is at its end, at most until the deadline; then drains what the pipes hold,
  // closes them, writes out unfinished lines and closes the files. True if all ended by themselves; false if something
  // still held a pipe open (it gets SIGPIPE or EPIPE from now on).
  bool Detach(int attempt, TimePoint deadline);

  // The last lines of both streams in reading order, newline-terminated, valid UTF-8, bars collapsed to their last
  // state. Includes everything printed before the call: a rank seen to have ended has said its last word here.
  std::string Tail(int rank, size_t max_lines = 64, size_t max_bytes = 16384) const;

  record::ProgressState Progress(int rank) const;

  // What a rank has printed, whatever it was; does not wait for the reader.
  struct Activity {
    uint64_t bytes = 0;
    TimePoint last{};
    std::string last_line;
  };
  Activity LastActivity(int rank) const;

  // A line of the launcher itself, through the same writer: it never lands inside a rank's line. May hold several
  // lines.
  void Say(std::string_view line, bool err);

  // The state worth one line ("waiting for 2 of 8 nodes"). Rewritten in place on a terminal, else printed as a line
  // when it changed and the last one is some seconds old. Empty: none.
  void SetStatus(std::string_view line);

  LogStats Stats() const;

  // Waits until the console has taken everything, at most until the deadline. False if it did not: the rest is dropped.
  bool FlushConsole(TimePoint deadline);

 private:
  struct Impl;
  explicit LogPump(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::logs
