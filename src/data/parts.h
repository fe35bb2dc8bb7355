// Parts of files: a member of a tar file, a value of an LMDB. Read by pread, never by mmap: on a network file system a
// mapped page that cannot be read kills the process. The last few files stay open, since a part is small and opening a
// file is a request of its own. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep::data {

// Bytes [offset, offset + bytes) of a file into `out`, all of them or an error. What listings of containers read with.
using ReadAt = std::function<Status(uint64_t offset, size_t bytes, char* out)>;

// What tells a file from a changed one without reading it. {0, 0}: there is none.
struct FileStamp {
  uint64_t bytes = 0;
  int64_t changed = 0;  // nanoseconds
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
FileStamp StampOf(const std::string& path);

// A file opened to be listed: its size, and reading it.
struct ListedFile {
  uint64_t bytes = 0;
  ReadAt read;
};
Result<ListedFile> OpenListed(const std::string& path);

class PartReader {
 public:
  explicit PartReader(size_t most_open = 64) : most_open_(most_open) {}
  // `name` stands for the part in errors.
  Result<std::string> Read(const std::string& path, uint64_t offset, uint64_t bytes, const std::string& name) const;

 private:
  struct Open {
    std::string path;
    std::shared_ptr<const UniqueFd> fd;
  };
  Result<std::shared_ptr<const UniqueFd>> Find(const std::string& path) const;
  void Forget(const std::string& path) const;

  size_t most_open_;
  mutable std::mutex mutex_;
  mutable std::list<Open> open_;  // the last used first
};

}  // namespace lockstep::data
