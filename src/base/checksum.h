// XXH3-128 in pieces: the checksum of checkpoints. It recognises damage, not forgery. One stream, one thread.
//
//   Checksum sum;
//   sum.Update(data, bytes);
//   std::string text = sum.Text();  // "xxh3-128:<32 hex>"
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class Checksum {
 public:
  Checksum() { Reset(); }
  void Reset();
  void Update(const void* data, size_t bytes);
  // Of everything since Reset; may be asked more than once.
  std::string Text() const;
  // The same 16 bytes, big-endian as upstream prints them.
  std::array<uint8_t, 16> Bytes() const;

 private:
  alignas(64) unsigned char state_[576];
};

std::string ChecksumText(std::string_view data);

// XXH3-64: of many small pieces, where 8 bytes each are enough.
uint64_t Checksum64(const void* data, size_t bytes, uint64_t seed = 0);

}  // namespace lockstep
