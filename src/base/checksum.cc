#include "base/checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

// All of xxHash in this file: no library to link, and nothing of it in our headers.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lockstep {
namespace {

XXH3_state_t* State(unsigned char* bytes) { return reinterpret_cast<XXH3_state_t*>(bytes); }

}  // namespace

void Checksum::Reset() {
  static_assert(sizeof(XXH3_state_t) == sizeof state_ && alignof(XXH3_state_t) <= 64);
  XXH3_128bits_reset(State(state_));
}

void Checksum::Update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(State(state_), data, bytes);
}

std::string Checksum::Text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_));
  return fmt::format("xxh3-128:{:016x}{:016x}", hash.high64, hash.low64);
}

std::array<uint8_t, 16> Checksum::Bytes() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_)));
  std::array<uint8_t, 16> bytes{};
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), bytes.begin());
  return bytes;
}

uint64_t Checksum64(const void* data, size_t bytes, uint64_t seed) { return XXH3_64bits_withSeed(data, bytes, seed); }

std::string ChecksumText(std::string_view data) {
  Checksum sum;
  sum.Update(data.data(), data.size());
  return sum.Text();
}

}  // namespace lockstep
