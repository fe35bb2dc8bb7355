#include "logs/log_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/digits.h"

namespace lockstep::logs {
namespace {

constexpr std::chrono::seconds kCheckDeleted{1};

const char* Reason(int error) {
  switch (error) {
    case ENOSPC:
      return "disk full";
    case EDQUOT:
      return "disk quota exceeded";
    case ETIMEDOUT:
      return "disk did not answer";
    case EIO:
      return "disk error";
    case EROFS:
      return "filesystem is read-only";
    case EACCES:
    case EPERM:
      return "no permission";
    case ENOENT:
    case ENOTDIR:
      return "folder is gone";
    default:
      return "write failed";
  }
}

}  // namespace

LogFile::LogFile(std::string path, LogRotation rotation) : path_(std::move(path)), rotation_(rotation) {}

std::string LogFile::Rotated(int n) const { return path_ + "." + std::to_string(n); }

// An earlier run with a larger `keep` may have left more.
void LogFile::RemoveBeyondKeep() const {
  const std::filesystem::path path(path_);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const std::string stem = path.filename().string() + ".";
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    std::string_view name = entry->d_name;
    if (!name.starts_with(stem)) continue;
    const std::optional<int> number = ParseDigits(name.substr(stem.size()));
    if (!number || *number <= rotation_.keep) continue;
    ::unlink((folder + "/" + entry->d_name).c_str());
  }
  ::closedir(dir);
}

bool LogFile::Open(TimePoint now) {
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!fd_ && errno == ENOENT) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  }
  if (!fd_) {
    Fail(errno, now);
    return false;
  }
  struct stat st{};
  regular_ = ::fstat(fd_.get(), &st) == 0 && S_ISREG(st.st_mode);
  size_ = regular_ ? static_cast<uint64_t>(st.st_size) : 0;
  check_at_ = now + kCheckDeleted;
  if (!opened_before_) {
    opened_before_ = true;
    line_start_ = true;
    if (rotation_.bytes > 0) RemoveBeyondKeep();
  } else if (size_ == 0) {
    line_start_ = true;
  }
  return true;
}

void LogFile::Fail(int error, TimePoint now) {
  pending_errno_ = error;
  if (counts_.first_errno == 0) counts_.first_errno = error;
  retry_at_ = now + kRetry;
  fd_.reset();
}

void LogFile::Lose(uint64_t bytes, int error) {
  if (bytes == 0) return;
  counts_.lost += bytes;
  pending_lost_ += bytes;
  pending_errno_ = error;
  if (counts_.first_errno == 0) counts_.first_errno = error;
}

// All or nothing: half a marker would look like a rank's own words.
bool LogFile::WriteMarker() {
  const std::string marker =
      fmt::format("{}[lockstep: {} bytes lost: {}]\n", line_start_ ? "" : "\n", pending_lost_, Reason(pending_errno_));
  ssize_t n = ::write(fd_.get(), marker.data(), marker.size());
  if (n != static_cast<ssize_t>(marker.size())) {
    if (n > 0 && regular_ && ::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) size_ += static_cast<uint64_t>(n);
    if (n >= 0) errno = ENOSPC;
    return false;
  }
  size_ += marker.size();
  line_start_ = true;
  pending_lost_ = 0;
  return true;
}

bool LogFile::Ready(TimePoint now) {
  if (fd_ && regular_ && now >= check_at_) {
    check_at_ = now + kCheckDeleted;
    struct stat st{};
    // A deleted file takes bytes without a word.
    if (::fstat(fd_.get(), &st) == 0 && st.st_nlink == 0) fd_.reset();
  }
  if (!fd_) {
    if (now < retry_at_ || !Open(now)) return false;
  }
  if (pending_lost_ > 0 && !WriteMarker()) {
    Fail(errno, now);
    return false;
  }
  return true;
}

bool LogFile::Put(std::string_view data, TimePoint now) {
  while (!data.empty()) {
    ssize_t n = ::write(fd_.get(), data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n < 0 ? errno : ENOSPC;
      Fail(error, now);
      Lose(data.size(), error);
      return false;
    }
    size_ += static_cast<uint64_t>(n);
    counts_.stored += static_cast<uint64_t>(n);
    line_start_ = data[static_cast<size_t>(n) - 1] == '\n';
    data.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool LogFile::Rotate(TimePoint now) {
  if (now < rotate_at_) return false;
  int error = 0;
  if (rotation_.keep <= 0) {
    if (::unlink(path_.c_str()) != 0) error = errno;
  } else {
    ::unlink(Rotated(rotation_.keep).c_str());
    for (int n = rotation_.keep - 1; n >= 1; --n) ::rename(Rotated(n).c_str(), Rotated(n + 1).c_str());
    if (::rename(path_.c_str(), Rotated(1).c_str()) != 0) error = errno;
  }
  if (error != 0 && error != ENOENT) {
    // The file grows past its limit until renaming works again; nothing is lost.
    rotate_at_ = now + kRetry;
    return false;
  }
  ++counts_.rotations;
  fd_.reset();
  return Open(now);
}

void LogFile::Write(std::string_view data, TimePoint now) {
  if (data.empty()) return;
  if (!Ready(now)) {
    Lose(data.size(), pending_errno_ != 0 ? pending_errno_ : EIO);
    return;
  }
  while (!data.empty()) {
    if (rotation_.bytes == 0 || !regular_ || size_ + data.size() <= rotation_.bytes) {
      Put(data, now);
      return;
    }
    const size_t room = size_ < rotation_.bytes ? static_cast<size_t>(rotation_.bytes - size_) : 0;
    const void* end = room > 0 ? ::memrchr(data.data(), '\n', room) : nullptr;
    size_t take = end != nullptr ? static_cast<size_t>(static_cast<const char*>(end) - data.data()) + 1 : 0;
    if (take == 0 && !line_start_) {
      // Inside a line: finish it here, unless that alone would fill another file.
      const void* eol =
          ::memchr(data.data(), '\n', static_cast<size_t>(std::min<uint64_t>(data.size(), rotation_.bytes)));
      take = eol != nullptr ? static_cast<size_t>(static_cast<const char*>(eol) - data.data()) + 1 : room;
    } else if (take == 0 && size_ == 0) {
      take = room;  // one line longer than a whole file
    }
    if (take > 0) {
      if (!Put(data.substr(0, take), now)) {
        Lose(data.size() - take, pending_errno_);
        return;
      }
      data.remove_prefix(take);
      if (data.empty()) return;
    }
    if (!Rotate(now)) {
      if (fd_) {
        Put(data, now);
      } else {
        Lose(data.size(), pending_errno_);
      }
      return;
    }
  }
}

void LogFile::Close(TimePoint now) {
  if (pending_lost_ > 0) {
    retry_at_ = now;
    Ready(now);
  }
  fd_.reset();
}

}  // namespace lockstep::logs
