// Reads one rank's log from its oldest kept line to its newest, through rotations that happen meanwhile: rank-0.log is
// renamed to rank-0.log.1 (older ones shift up) and a new rank-0.log appears. Nothing is read twice and nothing is
// missed, unless rotation removed a file before it was read; that is counted. One reader, one thread; it needs
// no cooperation of the writer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace lockstep::record {

class LogTail {
 public:
  explicit LogTail(std::string path) : path_(std::move(path)) {}

  // Leaves out all but the last `lines` lines of what is there now, or the last `bytes` where these are fewer. Before
  // the first Read.
  void SkipToLast(size_t lines, size_t bytes = SIZE_MAX);

  // Appends some of what has not been read yet; false when there is nothing more for now.
  bool Read(std::string* out);

  // Bytes that are there and have not been read.
  size_t Remaining() const;
  // How often rotation was faster than this reader, so that lines are missing.
  uint64_t gaps() const { return gaps_; }
  const std::string& path() const { return path_; }

 private:
  struct File {
    UniqueFd fd;
    dev_t device = 0;
    ino_t inode = 0;
    bool final = false;  // rotated away: its writer has gone on to a newer file
  };

  // Opens every file newer than the last one known. False when the last one was not found among them.
  bool OpenNewer();

  std::string path_;
  std::deque<File> files_;  // oldest first; the front is being read
  int missed_scans_ = 0;
  uint64_t gaps_ = 0;
};

}  // namespace lockstep::record
