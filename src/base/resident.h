// Resident memory of this process, as the kernel counts it. Any thread.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace lockstep {

// In bytes; 0 where /proc cannot be read.
inline uint64_t ResidentBytes() {
  uint64_t total = 0, pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lu %lu", &total, &pages) != 2) pages = 0;
    std::fclose(file);
  }
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace lockstep
