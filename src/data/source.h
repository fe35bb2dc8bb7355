// Where samples come from. A Source has a fixed number of samples; reading one is a pure function of the Draw. Samples
// have one shape, or those of one shape lie together (buckets). Made by OpenSource (sources.h) and shared by the
// loader's threads: every member is const and may be called from any thread at once. Nothing here is collective; ranks
// that open the same data get equal sources.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lockstep::data {

enum class ElementType { kU8, kF32, kI64 };
size_t SizeOf(ElementType type);

// One part of a sample.
struct Field {
  std::string name;
  ElementType type = ElementType::kU8;
  std::vector<int64_t> shape;  // of one sample
  size_t elements() const;
  size_t bytes() const;
};

// What all randomness of a sample depends on.
struct Draw {
  uint64_t seed = 0;
  uint64_t epoch = 0;
  uint64_t index = 0;    // into the source
  bool augment = false;  // false: the same content in every epoch
  // Long reads end early with kInterrupted when this becomes true. No part of the sample's identity.
  const std::atomic<bool>* cancelled = nullptr;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual const std::vector<Field>& fields() const = 0;  // of the first bucket
  // Of one sample. Samples of one bucket share the object, and lie one after the other.
  virtual const std::vector<Field>& FieldsOf(uint64_t /*index*/) const { return fields(); }
  virtual uint64_t size() const = 0;
  // For messages: a path, or "clip 17".
  virtual std::string Name(uint64_t index) const = 0;
  // What the sample was cut from (a video, a folder of frames), as named below the source's root: equal for samples
  // that share pictures, independent of where the data lies.
  virtual std::string Origin(uint64_t index) const { return Name(index); }
  // Writes every field (out[i] has room for FieldsOf(draw.index)[i].bytes()) or fails, saying which file and why.
  virtual Status Read(const Draw& draw, std::span<std::byte* const> out) const = 0;
  // One line for the start of a run: kind, place, number of samples, what was left out.
  virtual std::string Describe() const = 0;
  // "xxh64:<16 hex digits>" over what identifies the samples (names and sizes of files); `data_digest` of run.json.
  virtual std::string Digest() const = 0;
};

// How many samples each bucket has, in their order: one number for a source of one shape. By a few looks, whatever the
// number of samples.
std::vector<uint64_t> BucketSizes(const Source& source);

// The samples of `source` at `indices`, in that order; ascending if it has several buckets.
std::unique_ptr<Source> Subset(std::shared_ptr<const Source> source, std::vector<uint64_t> indices);

struct Split {
  std::vector<uint64_t> train;
  std::vector<uint64_t> validation;
};

// Divides the samples by origin, so that no video is on both sides. Deterministic: origins are ordered by a hash of
// (seed, name), the first `fraction` of them validate; at least one origin on each side. Both lists are ascending.
// Errors: fewer than two origins, a fraction outside (0, 1).
Result<Split> SplitBySource(const Source& source, double fraction, uint64_t seed);

// Validation consists of the named origins. Errors: a name that no sample has, nothing left on one side.
Result<Split> SplitByNames(const Source& source, const std::vector<std::string>& validation_origins);

}  // namespace lockstep::data
