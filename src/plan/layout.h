// Where the trained parameters of a model lie in a flat buffer, how they fall into buckets, and which rank keeps which
// part of what. Pure arithmetic on names and sizes: no tensor, no other rank.
//
// Parameters lie in the order given (the reverse of their registration, about the order in which backward finishes
// their gradients), so that a bucket is a range of the buffer. Where buffers are sharded, every bucket falls into
// `shares` pieces of equal size, one per rank, and is padded to that. A bucket holds parameters of one group only: the
// unit of the model that is gathered as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::plan {

struct FlatRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const FlatRange&, const FlatRange&) = default;
};

// Elements. Parameters begin at multiples of it, and shares are cut there.
constexpr int64_t kFlatAlignment = 16;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// ZeRO's stages: what is kept in shares, one per rank, instead of whole on every rank.
enum class Stage { kReplicated = 0, kOptimizer = 1, kGradients = 2, kParameters = 3 };
enum class Buffer { kParameters, kGradients, kOptimizer };
constexpr bool IsSharded(Stage stage, Buffer buffer) {
  switch (buffer) {
    case Buffer::kOptimizer:
      return stage >= Stage::kOptimizer;
    case Buffer::kGradients:
      return stage >= Stage::kGradients;
    case Buffer::kParameters:
      return stage >= Stage::kParameters;
  }
  return false;
}

class Layout {
 public:
  struct Size {
    std::string name;
    int64_t numel = 0;
    int group = 0;  // neighbours of one group may share a bucket
  };
  struct Options {
    uint64_t bucket_bytes = 25u << 20;
    uint64_t first_bucket_bytes = 1u << 20;  // small, so that the first exchange starts early
    int shares = 1;                          // equal pieces of a bucket
  };
  struct Parameter {
    std::string name;
    int64_t offset = 0, numel = 0;  // in elements
    size_t bucket = 0;
  };

  Layout() = default;
  Layout(const std::vector<Size>& sizes, const Options& options);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<FlatRange>& buckets() const { return buckets_; }
  int GroupOf(size_t bucket) const { return groups_[bucket]; }
  int shares() const { return shares_; }
  int64_t numel() const { return buckets_.empty() ? 0 : buckets_.back().end; }  // with padding
  int64_t count() const { return count_; }                                      // without
  FlatRange Share(size_t bucket, int share) const;

  // What of a buffer is kept by the rank with this share: the whole as one range, or its share of each bucket.
  std::vector<FlatRange> Kept(Stage stage, Buffer buffer, int share) const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<FlatRange> buckets_;
  std::vector<int> groups_;  // per bucket
  int64_t count_ = 0;
  int shares_ = 1;
};

// The part of a parameter that lies in memory which holds some ranges of a flat buffer, one after the other.
struct Segment {
  size_t parameter = 0;
  int64_t begin = 0, end = 0;  // in that memory
  int64_t flat = 0;            // where it begins in the flat buffer
  friend bool operator==(const Segment&, const Segment&) = default;
};
std::vector<Segment> SegmentsOf(const Layout& layout, const std::vector<FlatRange>& ranges);
int64_t TotalSize(const std::vector<FlatRange>& ranges);

}  // namespace lockstep::plan
