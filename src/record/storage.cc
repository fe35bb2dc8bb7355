#include "record/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/fd.h"

namespace lockstep::record {
namespace {

constexpr size_t kDirectAlign = 4096;
constexpr size_t kDirectMin = 1u << 20;

class PosixFile : public WritableFile {
 public:
  PosixFile(UniqueFd fd, std::string path, Durability durability)
      : fd_(std::move(fd)), path_(std::move(path)), durability_(durability) {}

  Status Write(uint64_t offset, const void* data, size_t bytes) override {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      // Large aligned pieces go past the page cache: no second copy that takes memory and time from training.
      const bool aligned = (reinterpret_cast<uintptr_t>(at) | offset) % kDirectAlign == 0;
      const bool direct = aligned && bytes >= kDirectMin && SetDirect(true);
      if (!direct) (void)SetDirect(false);
      const size_t piece = std::min<size_t>(direct ? bytes / kDirectAlign * kDirectAlign : bytes, 1u << 30);
      const ssize_t n = ::pwrite(fd_.get(), at, piece, static_cast<off_t>(offset));
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno == EINVAL && direct) {
          can_direct_ = false;
          continue;
        }
        return FileError("write", path_, errno);
      }
      at += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<size_t>(n);
    }
    return Status::Ok();
  }

  Status Sync() override {
    if (durability_ == Durability::kPower && ::fsync(fd_.get()) != 0) return FileError("sync", path_, errno);
    return Status::Ok();
  }

  Status Close() override {
    // Network file systems report a full disk only here.
    if (::close(fd_.release()) != 0) return FileError("write", path_, errno);
    return Status::Ok();
  }

 private:
  bool SetDirect(bool on) {
    if (on == is_direct_) return on;
    if (on && !can_direct_) return false;
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
      can_direct_ = false;
      return false;
    }
    is_direct_ = on;
    return on;
  }

  UniqueFd fd_;
  std::string path_;
  Durability durability_;
  bool can_direct_ = true;
  bool is_direct_ = false;
};

class Posix : public Storage {
 public:
  explicit Posix(Durability durability) : durability_(durability) {}

  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd) return FileError("create", path, errno);
    return std::unique_ptr<WritableFile>(std::make_unique<PosixFile>(std::move(fd), path, durability_));
  }
  Status MakeDir(const std::string& path) override {
    return ::mkdir(path.c_str(), 0755) == 0 ? Status::Ok() : FileError("create folder", path, errno);
  }
  Status SyncDir(const std::string& path) override {
    if (durability_ != Durability::kPower) return Status::Ok();
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) return FileError("open folder", path, errno);
    // Some network file systems cannot sync a folder; names are durable there without.
    if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != EBADF) return FileError("sync folder", path, errno);
    return Status::Ok();
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status::Ok() : FileError("publish", to, errno);
  }
  Status Symlink(const std::string& target, const std::string& path) override {
    return ::symlink(target.c_str(), path.c_str()) == 0 ? Status::Ok() : FileError("link", path, errno);
  }
  Status Remove(const std::string& path) override {
    return std::remove(path.c_str()) == 0 || errno == ENOENT ? Status::Ok() : FileError("remove", path, errno);
  }

 private:
  Durability durability_;
};

}  // namespace

std::unique_ptr<Storage> PosixStorage(Durability durability) { return std::make_unique<Posix>(durability); }

Status RemoveTree(Storage& storage, const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? Status::Ok() : FileError("remove", path, errno);
  if (S_ISDIR(info.st_mode)) {
    Result<std::vector<std::string>> names = ListDir(path);
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) LOCKSTEP_RETURN_IF_ERROR(RemoveTree(storage, path + "/" + name));
  }
  return storage.Remove(path);
}

}  // namespace lockstep::record
