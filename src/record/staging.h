// Inside record/: the memory through which a rank's part of a checkpoint goes on its way to the disk, and the order in
// which it does. The part is a sequence of blocks; each has its place in a ring of bounded size, and may be filled once
// the block that had the place before is freed. Where everything fits, nothing is ever waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "record/checkpoint_plan.h"

namespace lockstep::record {

inline constexpr size_t kPage = 4096;

// Memory that is there before it is needed: a page fault during the copy costs six times the copy.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { Free(); }

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Status Grow(size_t bytes);

 private:
  void Free();
  void* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Stores that bypass the cache: staging is not read before the copy is over, and training needs the cache.
void StreamCopy(void* dst, const void* src, size_t bytes);

// A chunk of a file that this rank writes, or what this rank sends of a chunk that another one writes.
struct Block {
  uint64_t start = 0;  // in an endless staging; its place is start % size
  size_t bytes = 0;    // taken up in it
  size_t slices = 0;   // still to be copied
};

// One copy into a block, from a tensor or from the file's header.
struct Slice {
  size_t block = 0;
  size_t at = 0;  // in the block
  const char* src = nullptr;
  size_t bytes = 0;
  bool header = false;
};

// A chunk of a file as one rank sees it.
struct Chunk {
  size_t file = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
  static constexpr size_t kNoBlock = SIZE_MAX;
  size_t block = kNoBlock;
  // Bytes of the chunk that come from other ranks than the writer: by rank, ascending, those of a rank packed.
  struct Sent {
    int rank = 0;
    size_t bytes = 0;
  };
  std::vector<Sent> sent;
};

// What one rank does for a plan, in order; chunks that do not concern it are left out.
struct PartStream {
  std::vector<Chunk> chunks;
  std::vector<Block> blocks;
  std::vector<Slice> slices;
  size_t staging = 0;  // bytes of memory it needs

  // With at most `limit` bytes of staging, or what the largest block needs. `tensors` without data: sizes alone.
  static PartStream Make(const CheckpointPlan& plan, const std::vector<CheckpointTensor>& tensors, int rank,
                         size_t chunk_bytes, size_t limit);
};

// The sources of a chunk, cut at its borders.
std::vector<FileSource> SourcesOf(const PlannedFile& file, uint64_t offset, size_t bytes);

}  // namespace lockstep::record
