// Files with errors as values: bounded reads, publishing by rename, append of whole lines. Every error names the
// operation, the path and the system's reason, and a full disk, a missing permission and a missing folder each say what
// to do. Any thread; two writers of one path are ordered by rename.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lockstep {

// kEnvironment status "cannot <verb> '<path>': <reason>" with a hint where the reason has a usual cure.
Status FileError(std::string_view verb, const std::string& path, int error);

// The whole file, or an error if it is larger than max_bytes (a mistaken path must not fill memory).
Result<std::string> ReadFile(const std::string& path, size_t max_bytes = 64u << 20);

// What must survive: kProcess any death of this process (no fsync), kPower a power cut too.
enum class Durability { kProcess, kPower };

// Puts data under path so that a reader sees the old content or the new, never a part. The temporary file lies in the
// same folder and is removed on failure. A device or a pipe under path is written into and never replaced.
Status WriteFileAtomic(const std::string& path, std::string_view data, mode_t mode = 0644,
                       Durability durability = Durability::kPower);

// Appends line and a newline by one write in append mode. Concurrent appenders do not mix their lines.
Status AppendLine(const std::string& path, std::string_view line, mode_t mode = 0644);

// mkdir -p. An existing folder is fine; an existing file in its place is an error that says so.
Status MakeDirs(const std::string& path, mode_t mode = 0755);

// Names in a folder, sorted, without "." and "..".
Result<std::vector<std::string>> ListDir(const std::string& path);

// Removes a file or a folder with all it holds; links are removed, not followed. Ok when there is none. Not
// std::filesystem::remove_all: LibTorch brings an older copy of it that does not get on with this one.
Status RemoveAll(const std::string& path);

// A private folder, removed with its content at the end of scope.
class TempDir {
 public:
  static Result<TempDir> Create(const std::string& stem = "lockstep");
  TempDir(TempDir&& other) noexcept;
  TempDir& operator=(TempDir&& other) noexcept;
  ~TempDir();
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  explicit TempDir(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace lockstep
