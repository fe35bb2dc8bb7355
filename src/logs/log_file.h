// One rank's log file: appends, rotates (rank-0.log -> rank-0.log.1 -> rank-0.log.2 ...), and survives what disks do. A
// write that fails loses its bytes, which are counted; the file is opened anew after a second, and when it takes bytes
// again a marker line says how much is missing. A file or folder deleted underneath is made again. Used by one thread
// (LogWriter's).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "logs/log_rotation.h"

namespace lockstep::logs {

class LogFile {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kRetry{1000};  // between attempts on a file that fails

  struct Counts {
    uint64_t stored = 0;
    uint64_t lost = 0;
    uint64_t rotations = 0;
    int first_errno = 0;
  };

  LogFile(std::string path, LogRotation rotation);

  // Appends, or counts as lost. Rotates at a line's end wherever a line is shorter than the limit.
  void Write(std::string_view data, TimePoint now);
  // Bytes that were dropped before they came here.
  void Lose(uint64_t bytes, int error);
  // Writes the marker of a pending loss if the file takes it, and closes.
  void Close(TimePoint now);

  const std::string& path() const { return path_; }
  const Counts& counts() const { return counts_; }

 private:
  bool Ready(TimePoint now);
  bool Open(TimePoint now);
  bool WriteMarker();
  void Fail(int error, TimePoint now);
  bool Put(std::string_view data, TimePoint now);
  bool Rotate(TimePoint now);
  void RemoveBeyondKeep() const;
  std::string Rotated(int n) const;

  const std::string path_;
  const LogRotation rotation_;
  UniqueFd fd_;
  bool regular_ = false;
  uint64_t size_ = 0;
  bool line_start_ = true;
  bool opened_before_ = false;
  uint64_t pending_lost_ = 0;  // not yet said in the file
  int pending_errno_ = 0;
  TimePoint retry_at_{};
  TimePoint check_at_{};
  TimePoint rotate_at_{};
  Counts counts_;
};

}  // namespace lockstep::logs
