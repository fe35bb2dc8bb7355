#include "diagnose/log_reader.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/files.h"

namespace lockstep::diagnose {
namespace {

constexpr size_t kBuffer = 4 << 20;

struct Magic {
  std::string_view bytes;
  const char* name;
  const char* reader;
};
constexpr Magic kCompressed[] = {{"\x1f\x8b", "gzip", "zcat"},
                                 {"\x28\xb5\x2f\xfd", "zstd", "zstdcat"},
                                 {"\xfd"
                                  "7zXZ",
                                  "xz", "xzcat"},
                                 {"BZh", "bzip2", "bzcat"}};

}  // namespace

Status ReadLog(int fd, const std::string& path, const std::function<void(std::string_view)>& chunk) {
  std::vector<char> buffer(kBuffer);
  size_t filled = 0;
  bool first = true;
  while (true) {
    const ssize_t got = ::read(fd, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("read", path, errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (first && filled >= 6) {
      first = false;
      for (const Magic& magic : kCompressed) {
        if (std::string_view(buffer.data(), filled).starts_with(magic.bytes)) {
          return Status(Code::kEnvironment, fmt::format("'{}' is compressed ({})", path, magic.name),
                        fmt::format("{} '{}' | lockstep doctor diagnose -", magic.reader, path));
        }
      }
    }
    if (filled < buffer.size()) continue;
    const void* newline = memrchr(buffer.data(), '\n', filled);
    const size_t whole =
        newline == nullptr ? filled : static_cast<size_t>(static_cast<const char*>(newline) - buffer.data()) + 1;
    chunk({buffer.data(), whole});
    std::memmove(buffer.data(), buffer.data() + whole, filled - whole);
    filled -= whole;
  }
  if (filled > 0) chunk({buffer.data(), filled});
  return Status::Ok();
}

}  // namespace lockstep::diagnose
