// The thread between pipes and disk. The reader fills blocks of memory straight from the pipes and submits pieces of
// them; this thread appends the pieces to their files, so a disk that hesitates makes the reader wait only once all
// blocks are full, and a disk that hangs makes it drop (counted) instead of waiting for ever.
//
// Open, Take, Commit, Submit and CloseFile belong to the reader thread; Counts to any.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "logs/log_file.h"
#include "logs/log_rotation.h"

namespace lockstep::logs {

class LogWriter {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr size_t kBlock = 256 << 10;
  static constexpr size_t kBlocks = 16;

  struct Totals {
    uint64_t stored = 0, lost = 0, rotations = 0;
    int first_errno = 0;
    std::string first_path;
    uint64_t closed = 0;  // files closed so far
  };

  LogWriter(LogRotation rotation, std::chrono::milliseconds stall);
  // Stops after what is queued; if the disk hangs longer than `stall`, the thread is left behind.
  ~LogWriter();

  // A file of this path; nothing touches the disk yet.
  std::shared_ptr<LogFile> Open(std::string path);

  // Free memory of at least `least` bytes (<= kBlock). Waits for the disk as the class comment says.
  struct Space {
    char* data;
    size_t size;
  };
  Space Take(size_t least);
  // The first `bytes` of the space last taken go to the file (null: to nobody, the space is simply free again).
  void Commit(const std::shared_ptr<LogFile>& file, size_t bytes);
  // Hands everything committed to the thread.
  void Submit();
  void CloseFile(const std::shared_ptr<LogFile>& file);

  // Waits until `count` files have been closed.
  bool WaitClosed(uint64_t count, TimePoint deadline) const;
  Totals totals() const;

 private:
  struct Block {
    std::unique_ptr<char[]> bytes{new char[kBlock]};
    size_t used = 0;       // reader's
    size_t pending = 0;    // pieces not yet written; under the lock
    bool retired = false;  // full: free again after its last piece; under the lock
  };
  struct Piece {
    std::shared_ptr<LogFile> file;
    Block* block = nullptr;
    size_t begin = 0, size = 0;
    uint64_t lost = 0;
    bool close = false;
  };
  // Lives as long as the thread, which may outlive the writer when a disk hangs.
  struct Shared {
    mutable std::mutex mutex;
    std::condition_variable work, done;
    mutable std::condition_variable closed;
    std::vector<Piece> queue;
    std::vector<std::unique_ptr<Block>> all;
    std::vector<Block*> free;
    uint64_t finished = 0;  // pieces ever finished: the sign of life of the disk
    bool busy = false, stop = false, exited = false;
    Totals totals;
  };

  static void Run(const std::shared_ptr<Shared>& shared);
  Block* NextBlock();

  const LogRotation rotation_;
  const std::chrono::milliseconds stall_;
  std::shared_ptr<Shared> shared_;
  std::vector<Piece> batch_;
  Block* current_ = nullptr;
  Block scratch_;  // where bytes go that will be dropped
  bool dropping_ = false;
  struct Dropped {
    std::shared_ptr<LogFile> file;
    uint64_t bytes;
  };
  std::vector<Dropped> dropped_;
};

}  // namespace lockstep::logs
