// What an LMDB file (data.mdb) holds, without liblmdb: the keys of its main database and where their values lie. Values
// are contiguous in the file, so that a listing is all it takes to read them by pread; LMDB's own library maps the
// file, which network file systems do not support. Format of LMDB 0.9 on little-endian machines (data version 1), as
// liblmdb and Python's lmdb write it. Read only; a writer must not be at work. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/parts.h"

namespace lockstep::data {

struct LmdbValue {
  std::string key;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct LmdbListing {
  std::vector<LmdbValue> values;  // in the order of their keys
  uint64_t transaction = 0;       // the last one that was committed
};

// Errors: no LMDB, another version, several values of one key, pages that contradict each other or lie behind the end.
Result<LmdbListing> ListLmdb(const ReadAt& read, uint64_t file_bytes, const std::string& name);
// `path` is the folder that holds data.mdb, or the file itself.
Result<LmdbListing> ListLmdb(const std::string& path);
// The file of such a path.
std::string LmdbFile(const std::string& path);

}  // namespace lockstep::data
