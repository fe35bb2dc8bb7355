// A zip archive of stored (uncompressed) entries, as torch.save writes it: zip64, entries aligned for direct reading.
// Written here because it needs a fraction of the format and must distrust all of it: every offset is checked against
// the file, entries may not overlap, encrypted ones are refused,
// compressed ones are not read. Reading is const and safe from any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  // of the data in the file
  uint64_t bytes = 0;
  uint32_t crc32 = 0;   // zero: the writer computed none
  uint16_t method = 0;  // 0: stored; others can be listed, not read
};

class ZipFile {
 public:
  static Result<ZipFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* Find(std::string_view name) const;
  // An error that names the first compressed entry; ok when all are stored.
  Status CheckStored() const;
  // A whole entry, checked against its CRC; an error above max_bytes.
  Result<std::string> ReadAll(const ZipEntry& entry, size_t max_bytes) const;
  // Part of an entry's data, unchecked.
  Status ReadAt(const ZipEntry& entry, uint64_t offset, void* dst, size_t bytes) const;
  // The whole entry into dst, checked.
  Status ReadChecked(const ZipEntry& entry, void* dst) const;

 private:
  ZipFile() = default;
  Status ReadRaw(uint64_t offset, void* dst, size_t bytes) const;
  Status FindDirectory(uint64_t* offset, uint64_t* bytes, uint64_t* count) const;
  Status ReadDirectory(uint64_t offset, uint64_t bytes, uint64_t count);

  std::string path_;
  UniqueFd fd_;
  uint64_t file_bytes_ = 0;
  std::vector<ZipEntry> entries_;
};

// The CRC-32 of zip, zlib and PNG. `crc` is that of the bytes before, 0 at the start.
uint32_t Crc32(uint32_t crc, const void* data, size_t bytes);

}  // namespace lockstep
