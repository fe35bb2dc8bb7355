#include "record/log_tail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::record {

bool LogTail::OpenNewer() {
  std::vector<File> newer;  // newest first
  bool found = files_.empty();
  int missing = 0;
  // Upwards from the newest: a rotation under way moves files upwards too, so one may be met twice but none is passed
  // by. It leaves one number empty for a moment, hence two in a row end the chain.
  for (int i = 0; missing < 2; ++i) {
    std::string name = i == 0 ? path_ : fmt::format("{}.{}", path_, i);
    File file;
    file.fd.reset(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat info{};
    if (!file.fd || ::fstat(file.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
      // Without a current file the writer may be between its rename and its open: that is no end of the chain.
      if (i > 0) ++missing;
      continue;
    }
    missing = 0;
    file.device = info.st_dev;
    file.inode = info.st_ino;
    auto same = [&](const File& other) { return other.inode == file.inode && other.device == file.device; };
    if (!files_.empty() && same(files_.back())) {
      found = true;
      break;
    }
    if (std::none_of(newer.begin(), newer.end(), same)) newer.push_back(std::move(file));
  }
  if (!found && ++missed_scans_ < 3) return false;
  if (!found) {
    ++gaps_;
    found = true;
  }
  missed_scans_ = 0;
  for (auto it = newer.rbegin(); it != newer.rend(); ++it) {
    if (!files_.empty()) files_.back().final = true;
    files_.push_back(std::move(*it));
  }
  return found;
}

bool LogTail::Read(std::string* out) {
  char buffer[64 * 1024];
  for (;;) {
    if (files_.empty()) OpenNewer();
    if (files_.empty()) return false;
    File& file = files_.front();
    ssize_t n = ::read(file.fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) {
      out->append(buffer, static_cast<size_t>(n));
      return true;
    }
    if (file.final) {
      files_.pop_front();
      continue;
    }
    // Truncated in place: begin again, rather than wait for the file to outgrow the old position.
    struct stat info{};
    if (::fstat(file.fd.get(), &info) == 0 && info.st_size < ::lseek(file.fd.get(), 0, SEEK_CUR)) {
      ++gaps_;
      ::lseek(file.fd.get(), 0, SEEK_SET);
      continue;
    }
    // What was written between the last read and the rotation comes with one more read, now that it is final.
    OpenNewer();
    if (!files_.front().final) return false;
  }
}

void LogTail::SkipToLast(size_t lines, size_t bytes) {
  OpenNewer();
  size_t seen = 0, passed = 0;
  bool last_byte = true;  // a newline at the very end closes the last line and begins none
  for (size_t f = files_.size(); f-- > 0;) {
    int fd = files_[f].fd.get();
    off_t position = std::max<off_t>(0, ::lseek(fd, 0, SEEK_END));
    const auto begin_at = [&](off_t at) {
      ::lseek(fd, at, SEEK_SET);
      files_.erase(files_.begin(), files_.begin() + static_cast<std::ptrdiff_t>(f));
    };
    if (lines == 0) return begin_at(position);
    char buffer[16 * 1024];
    while (position > 0) {
      off_t begin = std::max<off_t>(0, position - static_cast<off_t>(sizeof buffer));
      ssize_t n = ::pread(fd, buffer, static_cast<size_t>(position - begin), begin);
      if (n <= 0) break;
      for (ssize_t i = n; i-- > 0;) {
        bool line_start = buffer[i] == '\n' && !last_byte;
        last_byte = false;
        if (line_start) ++seen;
        if (line_start && seen == lines) return begin_at(begin + i + 1);
      }
      passed += static_cast<size_t>(n);
      position = begin;
      // Inside a line, most likely: what is left of it is one line that says nothing.
      if (passed >= bytes) return begin_at(begin);
    }
    ::lseek(fd, 0, SEEK_SET);
  }
}

size_t LogTail::Remaining() const {
  size_t bytes = 0;
  for (const File& file : files_) {
    struct stat info{};
    const off_t at = ::lseek(file.fd.get(), 0, SEEK_CUR);
    if (::fstat(file.fd.get(), &info) == 0 && at >= 0 && info.st_size > at) {
      bytes += static_cast<size_t>(info.st_size - at);
    }
  }
  return bytes;
}

}  // namespace lockstep::record
