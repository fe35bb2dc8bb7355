// Digests of the feature cache: SHA-256 where two things must never be taken for one another (weights, descriptions,
// keys), XXH3-128 for the content of items, which is read at the speed of memory. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/weights.h"

namespace lockstep::cache {

using Digest = std::array<uint8_t, 32>;
using ItemDigest = std::array<uint8_t, 16>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(const void* data, size_t bytes);
  void Update(uint64_t number) { Update(&number, sizeof number); }
  // With its length before it, so that no two sequences of texts give the same bytes.
  void Text(std::string_view text);
  Digest Finish();

 private:
  void* context_;
};

Digest DigestOf(std::string_view text);
std::string Hex(std::span<const uint8_t> bytes);

// Of the content of one item (a frame, an image, a file's bytes).
ItemDigest DigestItem(const void* data, size_t bytes);

// "sha256:<64 hex>" of a file's bytes: for TorchScript and programs, where code and weights are one.
Result<std::string> FileDigest(const std::string& path);
// "sha256:<64 hex>" over the tensors sorted by name; independent of the file format and of shards.
Result<std::string> WeightsDigest(const Weights& weights);

}  // namespace lockstep::cache
