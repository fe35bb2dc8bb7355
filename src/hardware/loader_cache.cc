#include "hardware/loader_cache.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "base/files.h"

namespace lockstep::hardware {
namespace {

constexpr std::string_view kMagic = "glibc-ld.so.cache1.1";
constexpr size_t kHeader = 48;  // magic, counts, flags, offset of extensions, reserved

struct Entry {
  int32_t flags;
  uint32_t name, path, os_version;
  uint64_t hardware;
};
static_assert(sizeof(Entry) == 24);

std::optional<std::string> Text(std::string_view bytes, uint32_t offset) {
  if (offset >= bytes.size()) return std::nullopt;
  const std::string_view rest = bytes.substr(offset, 4096);
  const size_t end = rest.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  return std::string(rest.substr(0, end));
}

// An ELF library of the 64-bit ABI of x86 or ARM.
bool IsOurs(int32_t flags) { return (flags & 0xff) == 3 && ((flags & 0xff00) == 0x300 || (flags & 0xff00) == 0xa00); }

}  // namespace

std::vector<CachedLibrary> ParseLoaderCache(std::string_view bytes) {
  std::vector<CachedLibrary> libraries;
  const size_t start = bytes.find(kMagic);
  if (start == std::string_view::npos) return libraries;
  bytes.remove_prefix(start);  // offsets count from here
  if (bytes.size() < kHeader) return libraries;
  uint32_t count = 0;
  std::memcpy(&count, bytes.data() + kMagic.size(), sizeof count);
  for (uint32_t i = 0; i < count && kHeader + (uint64_t{i} + 1) * sizeof(Entry) <= bytes.size(); ++i) {
    Entry entry{};
    std::memcpy(&entry, bytes.data() + kHeader + uint64_t{i} * sizeof entry, sizeof entry);
    const auto name = Text(bytes, entry.name), path = Text(bytes, entry.path);
    if (name && path && IsOurs(entry.flags)) libraries.push_back({*name, *path});
  }
  return libraries;
}

std::vector<CachedLibrary> ReadLoaderCache(const std::string& path) {
  const Result<std::string> bytes = ReadFile(path, 16u << 20);
  return bytes.ok() ? ParseLoaderCache(*bytes) : std::vector<CachedLibrary>();
}

}  // namespace lockstep::hardware
