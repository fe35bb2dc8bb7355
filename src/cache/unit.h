// A unit: an immutable safetensors file with rows of features (docs/formats/feature-cache.md). UnitBuilder collects
// rows in memory and publishes them at once; one thread at a time. UnitFile is an opened unit whose table was verified;
// const and safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "cache/block_memory.h"
#include "cache/description.h"

namespace lockstep::cache {

uint64_t RowSum(const Digest& key, const void* data, size_t bytes);

class UnitBuilder {
 public:
  UnitBuilder(std::vector<Column> columns, uint64_t expected_rows);

  uint64_t rows() const { return keys_.size(); }
  uint64_t bytes() const;
  bool Has(const Digest& key) const;
  // Room for one more row, one pointer per column; valid until the next call.
  std::vector<std::byte*> Add(const Digest& key);
  // Writes (past the page cache where the file system can), syncs and renames. False: the unit was already there.
  // Nothing remains after an error.
  Result<bool> Publish(const std::string& path, const std::map<std::string, std::string>& metadata) const;

 private:
  std::vector<Column> columns_;
  std::vector<Digest> keys_;
  std::vector<BlockMemory> data_;  // one per column; zeros from the last row to the end of its block
};

class UnitFile {
 public:
  // Opens for direct reading where the file system can (`direct`), else through the page cache. An error for anything
  // that is not a whole unit of this namespace with these columns.
  static Result<std::shared_ptr<const UnitFile>> Open(const std::string& path, const std::string& namespace_id,
                                                      const std::vector<Column>& columns, bool direct = true);

  const std::string& path() const { return path_; }
  uint64_t rows() const { return rows_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Digest& key(uint64_t row) const { return keys_[row]; }
  uint64_t sum(uint64_t row, size_t column) const { return sums_[row * columns_.size() + column]; }
  uint64_t offset(uint64_t row, size_t column) const { return begins_[column] + row * columns_[column].bytes; }
  int fd() const { return fd_.get(); }
  bool direct() const { return direct_; }
  // Reads begin and end at multiples of it, in the file and in memory. 1: through the page cache.
  uint64_t grain() const { return grain_; }

  // Every row and every byte of padding.
  Status Verify() const;

 private:
  UnitFile() = default;
  std::string path_;
  UniqueFd fd_;
  bool direct_ = false;
  uint64_t grain_ = 1;
  uint64_t rows_ = 0, file_bytes_ = 0;
  std::map<std::string, std::string> metadata_;
  std::vector<Column> columns_;
  std::vector<Digest> keys_;
  std::vector<uint64_t> sums_;
  std::vector<uint64_t> begins_;  // of each column in the file
  std::vector<std::pair<uint64_t, uint64_t>> pads_;
};

}  // namespace lockstep::cache
