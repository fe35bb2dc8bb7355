#include "record/line_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace lockstep::record {
namespace {

constexpr size_t kLongestForeignLine = 1u << 20;

// Without writing down when it was read, which is most of the cost of reading a line. Only who owns the file may.
UniqueFd OpenQuietly(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  UniqueFd fd(::open(path.c_str(), kFlags | O_NOATIME));
  if (!fd && errno == EPERM) fd.reset(::open(path.c_str(), kFlags));
  return fd;
}

}  // namespace

void LineFollower::Line(std::string_view text, const std::function<bool(std::string_view)>& each) {
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  if (!each(text)) ++bad_lines_;
}

bool LineFollower::Read(const std::function<bool(std::string_view)>& each, size_t max_bytes) {
  const UniqueFd fd = OpenQuietly(path_);
  struct stat info{};
  if (!fd || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (!seen_ || info.st_ino != inode_ || info.st_size < offset_) {
    inode_ = info.st_ino;
    offset_ = 0;
    partial_.clear();
    skipping_ = false;
    if (!seen_ && last_bytes_ && info.st_size > static_cast<off_t>(*last_bytes_)) {
      offset_ = info.st_size - static_cast<off_t>(*last_bytes_);
      skipping_ = true;
    }
    seen_ = true;
  }
  if (most_ && info.st_size - offset_ > static_cast<off_t>(*most_)) {
    offset_ = info.st_size - static_cast<off_t>(*most_);
    partial_.clear();
    skipping_ = true;
  }
  char buffer[64 << 10];
  for (size_t total = 0; total < max_bytes;) {
    const ssize_t n = ::pread(fd.get(), buffer, sizeof buffer, offset_);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    offset_ += n;
    total += static_cast<size_t>(n);
    std::string_view rest(buffer, static_cast<size_t>(n));
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
      if (skipping_) {
        skipping_ = false;
      } else if (partial_.empty()) {
        Line(rest.substr(0, end), each);
      } else {
        partial_.append(rest.substr(0, end));
        Line(partial_, each);
      }
      partial_.clear();
    }
    if (!skipping_) partial_.append(rest);
    if (partial_.size() > kLongestForeignLine) {
      ++bad_lines_;
      skipping_ = true;
      partial_.clear();
    }
    if (static_cast<size_t>(n) < sizeof buffer && offset_ >= info.st_size) return false;
  }
  return true;
}

}  // namespace lockstep::record
