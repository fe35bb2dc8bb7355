// Reads the lines of a file that still grows, whoever writes it. A file that is not there yet, shrank or was replaced
// is no error. No file stays open in between: a thousand ranks are more than a process may hold. One thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::record {

class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) {}

  // Calls with every complete new line that is not blank, without its newline, at most about max_bytes of them; true
  // when there is more to read now. A line for which `each` returns false is counted as bad.
  bool Read(const std::function<bool(std::string_view)>& each, size_t max_bytes);

  // Leaves out all but the last so many bytes (whole lines) of what is there at the first Read.
  void SkipToLast(size_t bytes) { last_bytes_ = bytes; }

  // Of what was appended between two calls, only the last so many bytes (whole lines) are read.
  void MostAtOnce(size_t bytes) { most_ = bytes; }

  uint64_t bad_lines() const { return bad_lines_; }  // torn, foreign or far too long
  // The last line carries no newline: its writer is at it, or was killed.
  bool torn_tail() const { return !partial_.empty(); }
  const std::string& path() const { return path_; }

 private:
  void Line(std::string_view text, const std::function<bool(std::string_view)>& each);

  std::string path_;
  bool seen_ = false;
  ino_t inode_ = 0;
  off_t offset_ = 0;
  std::optional<size_t> last_bytes_, most_;
  std::string partial_;
  bool skipping_ = false;  // inside a line that is too long to be one
  uint64_t bad_lines_ = 0;
};

}  // namespace lockstep::record
