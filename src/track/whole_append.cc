#include "track/whole_append.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/files.h"

namespace lockstep::track {

Status StillThere(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0 || info.st_nlink > 0) return Status::Ok();
  return Status(Code::kEnvironment, fmt::format("'{}' was removed; what belongs there is lost", path));
}

Status AppendWhole(int fd, const std::string& path, std::string* buffer, off_t* size) {
  if (!buffer->empty()) LOCKSTEP_RETURN_IF_ERROR(StillThere(fd, path));
  size_t done = 0;
  while (done < buffer->size()) {
    const ssize_t n = ::write(fd, buffer->data() + done, buffer->size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      if (done > 0 && ::ftruncate(fd, *size) != 0) return FileError("truncate", path, errno);
      return FileError("write", path, error);
    }
    done += static_cast<size_t>(n);
  }
  *size += static_cast<off_t>(done);
  buffer->clear();
  return Status::Ok();
}

}  // namespace lockstep::track
