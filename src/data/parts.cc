#include "data/parts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "data/stages.h"

namespace lockstep::data {
namespace {

constexpr uint64_t kMostBytesOfAPart = 1ull << 30;

// 0, an errno, or -1: the file ends before.
int ReadAll(int fd, uint64_t offset, size_t bytes, char* out) {
  while (bytes > 0) {
    const ssize_t n = ::pread(fd, out, std::min<size_t>(bytes, 1u << 30), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return -1;
    out += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

Status Shorter(const std::string& name) {
  return Status(Code::kEnvironment, fmt::format("'{}' lies behind the end of its file: it became shorter", name),
                "let nothing write to the data while they are trained on");
}

}  // namespace

FileStamp StampOf(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return {};
  constexpr int64_t kNanoseconds = 1'000'000'000;
  return {static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec * kNanoseconds + info.st_mtim.tv_nsec};
}

Result<ListedFile> OpenListed(const std::string& path) {
  auto fd = std::make_shared<const UniqueFd>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!*fd) return FileError("open", path, errno);
  struct stat info{};
  if (::fstat(fd->get(), &info) != 0) return FileError("read", path, errno);
  if (!S_ISREG(info.st_mode)) return Status(Code::kUsage, fmt::format("'{}' is not a file", path));
  ListedFile file;
  file.bytes = static_cast<uint64_t>(info.st_size);
  file.read = [fd, path](uint64_t offset, size_t bytes, char* out) {
    const int error = ReadAll(fd->get(), offset, bytes, out);
    if (error == 0) return Status::Ok();
    return error < 0 ? Shorter(path) : FileError("read", path, error);
  };
  return file;
}

Result<std::shared_ptr<const UniqueFd>> PartReader::Find(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(open_, path, &Open::path);
  if (it != open_.end()) {
    open_.splice(open_.begin(), open_, it);
    return open_.front().fd;
  }
  auto fd = std::make_shared<const UniqueFd>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!*fd) return FileError("open", path, errno);
  open_.push_front({path, fd});
  if (open_.size() > most_open_) open_.pop_back();
  return fd;
}

void PartReader::Forget(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const Open& open) { return open.path == path; });
}

Result<std::string> PartReader::Read(const std::string& path, uint64_t offset, uint64_t bytes,
                                     const std::string& name) const {
  if (bytes > kMostBytesOfAPart) {
    return Status(Code::kEnvironment,
                  fmt::format("'{}' has {} bytes; expected at most {}", name, bytes, kMostBytesOfAPart));
  }
  const StageMark mark(LoadStage::kRead);
  std::string out(bytes, '\0');
  // A file replaced on its server leaves a stale handle (ESTALE): it is opened once more.
  for (bool again = false;; again = true) {
    Result<std::shared_ptr<const UniqueFd>> fd = Find(path);
    if (!fd.ok()) return fd.status();
    const int error = ReadAll((*fd)->get(), offset, out.size(), out.data());
    if (error == 0) return out;
    if (error < 0) return Shorter(name);
    if (error != ESTALE || again) return FileError("read", name, error);
    Forget(path);
  }
}

}  // namespace lockstep::data
