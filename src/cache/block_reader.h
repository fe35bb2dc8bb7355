// Many reads of blocks at once: io_uring by system calls where the kernel and the container allow it, else threads with
// pread. The page cache is passed by where the descriptor was opened with O_DIRECT (offset, size and memory are then
// multiples of kBlock; the end of a file may be short). Any thread may call Read; calls are served one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lockstep::cache {

struct BlockRead {
  int fd = -1;
  uint64_t offset = 0;
  size_t bytes = 0;   // room
  size_t needed = 0;  // less than this is an error: the file ends early
  std::byte* to = nullptr;
  int error = 0;  // afterwards: errno, or 0
};

class BlockReader {
 public:
  virtual ~BlockReader() = default;
  virtual std::string_view name() const = 0;
  // `done(i)` is called once for each read when it is over, while others are under way; from any thread.
  virtual void Read(std::span<BlockRead> reads, const std::function<void(size_t)>& done) = 0;
};

// An error says why it is not allowed here (old kernel, seccomp).
Result<std::unique_ptr<BlockReader>> MakeUringReader(unsigned depth);
std::unique_ptr<BlockReader> MakePreadReader(unsigned threads);
// The first that is possible.
std::unique_ptr<BlockReader> MakeBlockReader(unsigned depth);

// Whether the file can be opened for reading past the page cache.
bool CanReadDirect(const std::string& path);

// One read in the calling thread.
int ReadBlocks(BlockRead* read);

}  // namespace lockstep::cache
