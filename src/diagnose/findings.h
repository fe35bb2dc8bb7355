// What the logs were found to hold, before anybody judges: errors with where and when, how far each rank came, how
// ranks ended. Bounded, whatever the size of the logs: of equal findings of one rank the first few and the last are
// kept and the rest counted. Plain values; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnose/origin.h"
#include "diagnose/signatures.h"

namespace lockstep::diagnose {

inline constexpr int kStrong = 4, kDecisive = 8;  // weights of findings from which on they count as such

struct Frame {
  std::string file, function, source;
  int line = 0;
};

struct LogFinding {
  std::string id;  // of the table's row or of a general rule
  Role role = Role::kRoot;
  Policy policy = Policy::kNone;
  int weight = 0;
  std::string cause, remedy;

  uint32_t source = 0;  // index of the file
  uint64_t line = 0;    // from 1
  std::string text;
  int rank = -1, local_rank = -1;
  std::string node;
  double time = 0;    // seconds since 1970, 0: unknown
  bool exact = true;  // the line has its own stamp; else that of a line before it
  Level level = Level::kNone;

  bool traceback = false;                              // an exception with its frames
  bool thread = false;                                 // raised in a thread that is not the main one
  std::string exception;                               // class with modules
  std::optional<Frame> frame;                          // innermost frame of the user's own code
  std::vector<std::pair<uint64_t, std::string>> more;  // further lines worth showing
  uint64_t marks = 0;                                  // progress of the same stream before it
  uint64_t source_marks = 0;                           // and of the whole file
  uint32_t stream = 0;                                 // index into streams
  bool earlier = false;                                // of an attempt the file went on after
  uint64_t count = 1;
};

// One speaker in one file: a rank where lines are tagged, else the whole file.
struct Stream {
  uint32_t source = 0;
  int rank = -1;
  std::string node;
  uint64_t marks = 0;  // progress lines that advanced
  std::optional<uint64_t> step, total;
  uint64_t last_mark_line = 0;
  uint64_t last_line = 0;  // the last one that was looked at
  double last_mark_time = 0;
  bool loss_finite = true;     // of the last line that names a loss
  uint64_t finished_line = 0;  // where it says it is done, 0: nowhere
  uint64_t done_line = 0;      // a bare "done": an end only as the file's last word
};

struct RankEnd {
  int rank = -1, local_rank = -1;
  std::string node;
  std::optional<int> code;
  int signal = 0;
  bool after_stop = false;
  bool first = false;  // somebody says this one was the first
  double time = 0;
  uint32_t source = 0;
  uint64_t line = 0;          // 0: not from a line
  uint64_t source_marks = 0;  // progress in the file before it
  std::string text;

  bool failed() const { return signal != 0 || code.value_or(0) != 0; }
};

struct SourceInfo {
  std::string path;
  int rank = -1;
  std::string node;
  double clock_offset = 0;  // to be added to its stamps
  uint64_t lines = 0, bytes = 0;
  uint64_t marks = 0;  // progress lines that advanced
  uint64_t last_mark_line = 0;
  std::string last_words;  // the last line that is not empty
  uint64_t last_words_line = 0;
};

struct Findings {
  std::vector<SourceInfo> sources;
  std::vector<LogFinding> all;
  std::vector<Stream> streams;
  std::vector<RankEnd> ends;
  std::optional<std::string> outcome;  // of report.json: succeeded, failed, stopped
  std::vector<std::string> notes;      // what could not be read
  int world = 0;                       // 0: unknown

  void Add(LogFinding finding);
  void AddEnd(RankEnd end);

 private:
  static constexpr size_t kFirst = 3, kMost = 20000, kMostEnds = 4096;
  struct Kept {
    size_t count = 0;
    size_t last = 0;  // index of the slot for the latest
  };
  std::map<std::string, Kept> kept_;
};

}  // namespace lockstep::diagnose
