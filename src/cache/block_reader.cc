#include "cache/block_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace lockstep::cache {
namespace {

// Threads live for one call: a call reads megabytes, which takes far longer than to start them.
class PreadReader final : public BlockReader {
 public:
  explicit PreadReader(unsigned threads) : threads_(std::max(1u, threads)) {}
  std::string_view name() const override { return "pread"; }

  void Read(std::span<BlockRead> reads, const std::function<void(size_t)>& done) override {
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next.fetch_add(1); i < reads.size(); i = next.fetch_add(1)) {
        reads[i].error = ReadBlocks(&reads[i]);
        done(i);
      }
    };
    std::vector<std::thread> others;
    const size_t count = std::min<size_t>(threads_, reads.size());
    for (size_t i = 1; i < count; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
  }

 private:
  unsigned threads_;
};

}  // namespace

int ReadBlocks(BlockRead* read) {
  size_t done = 0;
  while (done < read->needed) {
    const ssize_t n = ::pread(read->fd, read->to + done, read->bytes - done, static_cast<off_t>(read->offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return ENODATA;
    done += static_cast<size_t>(n);
  }
  return 0;
}

bool CanReadDirect(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT)).valid();
}

std::unique_ptr<BlockReader> MakePreadReader(unsigned threads) { return std::make_unique<PreadReader>(threads); }

std::unique_ptr<BlockReader> MakeBlockReader(unsigned depth) {
  Result<std::unique_ptr<BlockReader>> ring = MakeUringReader(depth);
  if (ring.ok()) return std::move(*ring);
  return MakePreadReader(depth);
}

}  // namespace lockstep::cache
