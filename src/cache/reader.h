// Verified reads of records by key. The index (key_index.h) holds 16 bytes a record in memory; units are opened when
// they are needed and the most recent ones stay open. Nothing is mapped. A record is handed out only if its checksum
// matches: anything else is an outcome that the caller answers by encoding live. Any thread; a batch is read with many
// requests under way.
//
//   Result<std::unique_ptr<Reader>> reader = Reader::Open(folder, {});
//   std::vector<Request> batch = {{.key = key, .fields = {latents}}};
//   (*reader)->Read(batch);
//   if (batch[0].outcome != Outcome::kHit) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/folder.h"

namespace lockstep::cache {

enum class Outcome {
  kHit,
  kMiss,
  kDamaged,     // a checksum or the unit itself is wrong
  kUnreadable,  // the file system gave an error
};

struct Request {
  RecordKey key;
  std::vector<std::byte*> fields;  // room for each field as the encoder gives it; null: not wanted
  Outcome outcome = Outcome::kMiss;
  std::string why = {};  // of kDamaged and kUnreadable
};

struct ReaderOptions {
  unsigned depth = 8;       // requests under way
  bool direct = true;       // pass the page cache by where the file system allows it
  bool uring = true;        // io_uring where it is allowed
  size_t open_units = 256;  // kept open
  // The stored index is written anew when at least so many units, and an eighth of all, had to be opened to know their
  // keys.
  uint64_t save_after = 64;
};

struct ReaderStats {
  uint64_t hits = 0, misses = 0, damaged = 0, unreadable = 0;
  uint64_t bytes = 0;
  double seconds = 0;  // in Read, summed over calls
};

class Reader {
 public:
  // Learns the keys of all units, from the stored index and the units that it does not know. Units that do not open are
  // named in warnings() and passed over.
  static Result<std::unique_ptr<Reader>> Open(const Folder& folder, ReaderOptions options = {});
  ~Reader();

  const Folder& folder() const;
  uint64_t records() const;
  std::vector<std::string> warnings() const;
  bool Has(const Digest& key) const;
  // Looks for units that were published since.
  Status Refresh();
  // Writes the stored index for later starts, unless nothing is new.
  Status SaveIndex();
  void Read(std::span<Request> requests);
  ReaderStats stats() const;
  // "io_uring, O_DIRECT, depth 8".
  std::string Describe() const;

 private:
  struct Inside;
  explicit Reader(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace lockstep::cache
