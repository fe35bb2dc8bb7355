// What a tar file holds, by reading its headers alone: ustar, GNU and pax names and sizes, as tar, Python's tarfile and
// WebDataset's writer make them. A header with a wrong checksum, a member that reaches behind the end of the file and a
// compressed file are errors: a list with a gap would be another data set. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/parts.h"

namespace lockstep::data {

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its bytes
  uint64_t bytes = 0;
};

// The regular files in it, in the file's order. Folders, links and devices are passed over.
Result<std::vector<TarMember>> ListTar(const ReadAt& read, uint64_t file_bytes, const std::string& name);
Result<std::vector<TarMember>> ListTar(const std::string& path);

// WebDataset's rule: a sample's key is the name up to the first dot of its last part, the rest is the extension.
// "a/000017.seg.png" -> {"a/000017", "seg.png"}.
std::pair<std::string_view, std::string_view> SplitSampleName(std::string_view name);

}  // namespace lockstep::data
