// The dynamic loader's list of libraries, /etc/ld.so.cache, in the format glibc writes since 2.2 (alone or behind the
// older one). A damaged file yields what could be read of it. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::hardware {

struct CachedLibrary {
  std::string name, path;  // "libnccl.so.2", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
};

std::vector<CachedLibrary> ReadLoaderCache(const std::string& path);
std::vector<CachedLibrary> ParseLoaderCache(std::string_view bytes);

}  // namespace lockstep::hardware
