#include "logs/log_excerpt.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "base/fd.h"
#include "base/text.h"
#include "logs/log_tail.h"

namespace lockstep::logs {
namespace {

constexpr off_t kCountMost = 64 << 20;  // lines before the excerpt are counted up to here
constexpr size_t kWindow = 16;          // times the excerpt is looked at
constexpr size_t kLongestLine = 4096;   // a message that prints a whole model says enough in its beginning
constexpr size_t kEarlier = 16 << 10;

bool BeginsTrouble(std::string_view line) {
  for (const std::string_view words :
       {"Traceback (most recent call last)", "Fatal Python error: ", "terminate called "}) {
    if (line.find(words) != std::string_view::npos) return true;
  }
  return false;
}

uint64_t CountLines(int fd, off_t end) {
  uint64_t lines = 0;
  std::string block(256 << 10, '\0');
  for (off_t at = 0; at < end;) {
    const ssize_t n = pread(fd, block.data(), std::min<size_t>(block.size(), static_cast<size_t>(end - at)), at);
    if (n <= 0) break;
    lines += static_cast<uint64_t>(std::count(block.begin(), block.begin() + n, '\n'));
    at += n;
  }
  return lines;
}

// The window with long lines cut; the number of lines stays.
std::string CutLines(std::string_view window) {
  std::string cut;
  while (!window.empty()) {
    const size_t eol = std::min(window.find('\n'), window.size());
    cut += window.substr(0, std::min(eol, kLongestLine));
    if (eol < window.size()) cut += '\n';
    window.remove_prefix(std::min(eol + 1, window.size()));
  }
  return cut;
}

}  // namespace

LogExcerpt ReadExcerpt(const std::string& path, size_t bytes) {
  LogExcerpt excerpt;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0) return excerpt;
  const auto most = static_cast<off_t>(bytes * kWindow);
  const off_t start = info.st_size > most ? info.st_size - most : 0;
  std::string text(static_cast<size_t>(info.st_size - start), '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), start);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  const bool counted = start <= kCountMost;
  uint64_t line = 1;
  if (start > 0) {
    if (counted) line += CountLines(fd.get(), start);
    const size_t eol = text.find('\n');
    text.erase(0, eol == std::string::npos ? 0 : eol + 1);
    if (counted && eol != std::string::npos) ++line;
  }
  if (text.size() > bytes) text = CutLines(text);
  size_t from = 0;
  if (text.size() > bytes) {
    const size_t eol = text.find('\n', text.size() - bytes);
    from = eol == std::string::npos ? text.size() - bytes : eol + 1;
  }
  excerpt.first_line = line;
  if (from > 0 && counted)
    excerpt.first_line += static_cast<uint64_t>(std::count(text.begin(), text.begin() + from, '\n'));
  for (size_t at = 0; at < from;) {
    const size_t eol = std::min(text.find('\n', at), from);
    if (BeginsTrouble(std::string_view(text).substr(at, eol - at))) {
      excerpt.earlier = text.substr(at, std::min(kEarlier, from - at));
      excerpt.earlier_line = line;
    }
    if (counted) ++line;
    at = eol + 1;
  }
  excerpt.earlier = ValidUtf8(excerpt.earlier);
  excerpt.text = ValidUtf8(text.substr(from));
  return excerpt;
}

}  // namespace lockstep::logs
