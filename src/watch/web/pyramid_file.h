// The frames of a pyramid file (docs/formats/pyramid.md): written at its end, read back at any place, torn tails cut
// off. One thread. Buckets are read where they lie; only their places are kept in memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace lockstep::watch {

struct Bucket {
  uint64_t first_step = 0, last_step = 0;
  double first_t = 0, last_t = 0;
  uint64_t offset = 0, bytes = 0;  // of the metric file
  uint32_t count = 0;              // finite values
  uint32_t not_finite = 0;
  double low = 0, high = 0, sum = 0;

  uint32_t values() const { return count + not_finite; }
  // The other one follows this one.
  void Join(const Bucket& next);
};
static_assert(sizeof(Bucket) == 80);

inline constexpr uint64_t kBucketFan = 8;
inline constexpr size_t kMostLevels = 12;

// Up to where the metric file was read.
struct PyramidState {
  uint64_t offset = 0, attempt = 0, lines = 0, bad_lines = 0;
};
static_assert(sizeof(PyramidState) == 32);

class PyramidFile {
 public:
  // Opens or makes the file; `sum` is that of the first metric line, `size` that of all of them. A file of other lines,
  // a damaged one or none at all is begun anew. Where it is locked or may not be written, a private copy is used.
  static Result<PyramidFile> Open(const std::string& path, uint64_t sum, uint64_t size);

  const PyramidState& state() const { return state_; }
  const std::vector<std::string>& names() const { return names_; }
  bool shared() const { return shared_; }  // false: a private copy
  uint64_t Count(size_t series, size_t level) const { return tables_[series][level].count; }

  // Buckets [begin, end) of a level, in order.
  Status Read(size_t series, size_t level, uint64_t begin, uint64_t end, std::vector<Bucket>* out) const;
  Bucket At(size_t series, size_t level, uint64_t index) const;

  // What follows counts for the next reader of the file only after Commit, as a whole.
  size_t AddSeries(std::string_view name);
  void Append(size_t series, size_t level, const Bucket& bucket);
  void Cut(size_t series, uint64_t count);
  Status Commit(const PyramidState& state);

 private:
  struct Extent {
    uint64_t first = 0;  // index of its first bucket
    uint64_t count = 0;
    uint64_t place = 0;  // in the file
  };
  struct Table {
    uint64_t count = 0;  // with the pending ones
    std::vector<Extent> extents;
    std::vector<Bucket> pending;
    void Cut(uint64_t to);
  };
  using Levels = std::array<Table, kMostLevels>;

  PyramidFile() = default;
  Status Begin(uint64_t sum);
  // The place behind the last whole addition; 0 when the file is none of ours.
  uint64_t Scan(uint64_t sum);
  uint64_t ScanTo(uint64_t limit);
  bool Apply(uint32_t kind, std::string_view payload, uint64_t place);
  void CutTables(size_t series, uint64_t keep);
  bool Consistent(uint64_t size) const;
  void Frame(uint32_t kind, std::string_view payload);
  void FlushPending();

  UniqueFd fd_;
  bool shared_ = true;
  uint64_t end_ = 0;  // of what is written
  std::string addition_;
  Status failed_;  // the first write that did
  PyramidState state_;
  std::vector<std::string> names_;
  std::vector<Levels> tables_;
};

}  // namespace lockstep::watch
