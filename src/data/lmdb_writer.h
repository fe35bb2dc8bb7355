// Writes an LMDB (data.mdb of version 0.9, one database without duplicates) that Python's lmdb and KAIR read. Values go
// to the file as they come, on pages of their own; Finish sorts the keys, writes the tree above them, and puts the
// folder under its name. Memory is that of the keys. One thread.
//
//   Result<LmdbWriter> lmdb = LmdbWriter::Create("train_GT.lmdb", /*overwrite=*/false);
//   lmdb->Put("clip/000047", png, "clip/000047.png (720,1280,3) 1");
//   LOCKSTEP_RETURN_IF_ERROR(lmdb->Finish());
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep::data {

class LmdbWriter {
 public:
  // `path` ends in .lmdb. An existing one is an error unless overwrite; it is replaced only at Finish.
  static Result<LmdbWriter> Create(const std::string& path, bool overwrite);
  LmdbWriter(LmdbWriter&&) = default;
  LmdbWriter& operator=(LmdbWriter&&) = delete;
  ~LmdbWriter();

  // `line` is the key's line of meta_info.txt. Keys have 1 to 511 bytes and each comes once.
  Status Put(std::string_view key, std::string_view value, const std::string& line);
  Status Finish();
  uint64_t entries() const { return entries_.size(); }

 private:
  struct Entry {
    std::string key;
    uint64_t bytes = 0;
    uint64_t page = 0;  // its first page
  };
  LmdbWriter() = default;
  Status Append(std::string_view bytes);
  Status WriteTree();

  std::string path_, temporary_;
  bool overwrite_ = false;
  UniqueFd file_;
  uint64_t pages_ = 2;  // written so far; the first two are the meta pages
  uint64_t overflow_pages_ = 0;
  std::vector<Entry> entries_;
  std::string meta_info_;
};

}  // namespace lockstep::data
