// Memory for O_DIRECT: begins at a multiple of kBlock and holds whole blocks, in large pages where it is large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/large_pages.h"

namespace lockstep::cache {

inline constexpr uint64_t kBlock = 4096;  // what O_DIRECT may ask for

inline constexpr uint64_t WholeBlocks(uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

class BlockMemory {
 public:
  BlockMemory() = default;
  BlockMemory(BlockMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), room_(std::exchange(other.room_, 0)) {}
  BlockMemory& operator=(BlockMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(room_, other.room_);
    return *this;
  }
  ~BlockMemory() { std::free(data_); }

  std::byte* data() const { return data_; }
  size_t room() const { return room_; }

  // At least `bytes` of room, of which the first `keep` keep their content and the rest has any. Null: out of memory.
  std::byte* Grow(size_t bytes, size_t keep = 0) {
    if (bytes <= room_) return data_;
    const size_t unit = PageAlignment(bytes, kBlock);
    const size_t room = (bytes + unit - 1) / unit * unit;
    auto* data = static_cast<std::byte*>(std::aligned_alloc(unit, room));
    if (data == nullptr) return nullptr;
    AskForLargePages(data, room);
    if (keep > 0) std::memcpy(data, data_, keep);
    std::free(data_);
    data_ = data;
    room_ = room;
    return data_;
  }

 private:
  std::byte* data_ = nullptr;
  size_t room_ = 0;
};

}  // namespace lockstep::cache
