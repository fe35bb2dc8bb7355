#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/fd.h"

namespace lockstep {
namespace {

std::string HintFor(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full: free space there, or choose a folder on another disk";
    case EDQUOT:
      return "your disk quota is used up: free space there, or choose another folder";
    case EACCES:
    case EPERM:
      return "check the owner and mode of the file and of the folders above it";
    case EROFS:
      return "this file system is read-only: choose another folder";
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "a part of this path is a file, not a folder";
    case EISDIR:
      return "this is a folder; give a file";
    case EMFILE:
    case ENFILE:
      return "too many open files: raise `ulimit -n`";
    case ESTALE:
      return "the network file system lost this file: check the mount";
    default:
      return "";
  }
}

Status WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("write", path, errno);
    }
    data.remove_prefix(static_cast<size_t>(n));
  }
  return Status::Ok();
}

std::string Parent(const std::string& path) {
  size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A rename is only durable once the folder is; folders of some network file systems cannot be synced, which is no loss
// there.
Status SyncDir(const std::string& dir) {
  UniqueFd fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return FileError("open folder", dir, errno);
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != EBADF) return FileError("sync folder", dir, errno);
  return Status::Ok();
}

}  // namespace

Status FileError(std::string_view verb, const std::string& path, int error) {
  return Status(Code::kEnvironment, fmt::format("cannot {} '{}': {}", verb, path, ErrnoText(error)), HintFor(error));
}

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return FileError("open", path, errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return FileError("read", path, errno);
  if (S_ISDIR(info.st_mode)) return FileError("read", path, EISDIR);
  std::string data;
  if (S_ISREG(info.st_mode)) data.reserve(std::min<size_t>(static_cast<size_t>(info.st_size), max_bytes) + 1);
  char buffer[64 * 1024];
  for (;;) {
    ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) continue;
      return FileError("read", path, errno);
    }
    if (n == 0) return data;
    data.append(buffer, static_cast<size_t>(n));
    if (data.size() > max_bytes) {
      return Status(Code::kEnvironment,
                    fmt::format("'{}' is larger than the {} bytes expected at most", path, max_bytes),
                    "check that this is the file you meant");
    }
  }
}

Status WriteFileAtomic(const std::string& path, std::string_view data, mode_t mode, Durability durability) {
  // /dev/null, /dev/stdout: a rename would put a file in the place of the device, for everybody on this machine.
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
    const UniqueFd there(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    return there ? WriteAll(there.get(), data, path) : FileError("open", path, errno);
  }
  // Unique within the machine by pid; hosts that share the folder differ by the counter's random start and O_EXCL.
  static std::atomic<uint32_t> counter{static_cast<uint32_t>(::time(nullptr)) * 2654435761u};
  std::string temp;
  UniqueFd fd;
  for (int tries = 0; tries < 16 && !fd; ++tries) {
    temp = fmt::format("{}.tmp-{}-{:08x}", path, ::getpid(), counter.fetch_add(1));
    fd.reset(::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!fd && errno != EEXIST) return FileError("create", path, errno);
  }
  if (!fd) return FileError("create", temp, EEXIST);
  auto fail = [&](Status status) {
    ::unlink(temp.c_str());
    return status;
  };
  Status written = WriteAll(fd.get(), data, path);
  if (!written.ok()) return fail(written);
  if (durability == Durability::kPower && ::fsync(fd.get()) != 0) return fail(FileError("sync", path, errno));
  // Network file systems report a full disk only here.
  if (::close(fd.release()) != 0) return fail(FileError("write", path, errno));
  if (::rename(temp.c_str(), path.c_str()) != 0) return fail(FileError("publish", path, errno));
  return durability == Durability::kPower ? SyncDir(Parent(path)) : Status::Ok();
}

Status AppendLine(const std::string& path, std::string_view line, mode_t mode) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode));
  if (!fd) return FileError("open", path, errno);
  std::string data(line);
  data += '\n';
  return WriteAll(fd.get(), data, path);
}

Status MakeDirs(const std::string& path, mode_t mode) {
  if (path.empty()) return FileError("create folder", path, ENOENT);
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), mode) == 0) continue;
    int error = errno;
    struct stat info{};
    // A parent we may not write to is fine as long as it is there.
    if (::stat(part.c_str(), &info) == 0) {
      if (S_ISDIR(info.st_mode)) continue;
      error = ENOTDIR;
    }
    return FileError("create folder", part, error);
  }
  return Status::Ok();
}

Result<std::vector<std::string>> ListDir(const std::string& path) {
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return FileError("list folder", path, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  int error = errno;
  ::closedir(dir);
  if (error != 0) return FileError("list folder", path, error);
  std::sort(names.begin(), names.end());
  return names;
}

Result<TempDir> TempDir::Create(const std::string& stem) {
  const char* base = std::getenv("TMPDIR");
  std::string path = fmt::format("{}/{}-XXXXXX", base != nullptr && *base != '\0' ? base : "/tmp", stem);
  if (::mkdtemp(path.data()) == nullptr) return FileError("create folder", path, errno);
  return TempDir(path);
}

TempDir::TempDir(TempDir&& other) noexcept : path_(std::exchange(other.path_, "")) {}

TempDir& TempDir::operator=(TempDir&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

Status RemoveAll(const std::string& path) {
  const auto remove_one = [](const char* name, const struct stat*, int, struct FTW*) { return std::remove(name); };
  if (nftw(path.c_str(), remove_one, 32, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return Status::Ok();
  return Status(Code::kEnvironment, fmt::format("cannot remove '{}': {}", path, ErrnoText(errno)));
}

TempDir::~TempDir() {
  if (!path_.empty()) (void)RemoveAll(path_);
}

}  // namespace lockstep
