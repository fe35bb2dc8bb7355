#include "track/whole_append.h"

#include <unistd.h>

#include <cerrno>

#include "base/files.h"

namespace lockstep::track {

Status AppendWhole(int fd, const std::string& path, std::string* buffer, off_t* size) {
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
