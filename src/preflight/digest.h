// Digests of what must be the same on every node: files with their content (code, configuration), or names and sizes
// (data). Bounded and in a fixed order, so that equal trees give equal digests however slow the disk. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"

namespace lockstep::preflight {

struct TreeOptions {
  bool content = true;  // false: names and sizes alone
  bool code = false;    // only what looks like source or configuration, no hidden folders, environments, runs
  size_t max_files = 2000;
  uint64_t max_bytes = 64ull << 20;  // of content
};

struct TreeDigest {
  std::string digest;
  uint64_t files = 0, bytes = 0;
  bool cut = false;                            // there was more than the bounds allow
  std::map<std::string, std::string> entries;  // relative path -> digest or size, to name a difference
};

// A file, or a folder with everything below it, the shallow first; links to folders are not entered.
Result<TreeDigest> DigestTree(const std::string& root, const TreeOptions& options);

// The commit of the git repository around this folder, read from its files; empty: none.
std::string GitCommit(std::string folder);

}  // namespace lockstep::preflight
