// XXH3-128 in pieces: the checksum of checkpoints. It recognises damage, not forgery. One stream, one thread.
//
//   Checksum sum;
//   sum.Update(data, bytes);
//   std::string text = sum.Text();  // "xxh3-128:<32 hex>"
#pragma once

#include <cstddef>
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

 private:
  alignas(64) unsigned char state_[576];
};

std::string ChecksumText(std::string_view data);

}  // namespace lockstep
