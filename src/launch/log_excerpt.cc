#include "launch/log_excerpt.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"
#include "launch/log_tail.h"

namespace lockstep::launch {
namespace {

constexpr off_t kCountMost = 64 << 20;  // lines before the excerpt are counted up to here

}  // namespace

LogExcerpt ReadExcerpt(const std::string& path, size_t bytes) {
  LogExcerpt excerpt;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0) return excerpt;
  const off_t start = info.st_size > static_cast<off_t>(bytes) ? info.st_size - static_cast<off_t>(bytes) : 0;
  if (start > 0 && start <= kCountMost) {
    std::string block(256 << 10, '\0');
    for (off_t at = 0; at < start;) {
      const ssize_t n =
          pread(fd.get(), block.data(), std::min<size_t>(block.size(), static_cast<size_t>(start - at)), at);
      if (n <= 0) break;
      excerpt.first_line += static_cast<uint64_t>(std::count(block.begin(), block.begin() + n, '\n'));
      at += n;
    }
  }
  std::string text(std::min(bytes, static_cast<size_t>(info.st_size - start)), '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), start);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (start > 0) {
    const size_t eol = text.find('\n');
    text.erase(0, eol == std::string::npos ? 0 : eol + 1);
    if (excerpt.first_line > 1 || start <= kCountMost) ++excerpt.first_line;
  }
  excerpt.text = ValidUtf8(text);
  return excerpt;
}

}  // namespace lockstep::launch
