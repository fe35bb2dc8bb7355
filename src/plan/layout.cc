#include "plan/layout.h"

#include <algorithm>

namespace lockstep::plan {
namespace {

// Whole cache lines: no two parameters share one, vector loads are aligned, and a share can be cut at any of them.
constexpr int64_t kAlignment = kFlatAlignment;

}  // namespace

// A bucket is closed once it holds at least its cap, and where a group ends; the first one has a cap of its own.
Layout::Layout(const std::vector<Size>& sizes, const Options& options) : shares_(options.shares) {
  auto cap = static_cast<int64_t>(options.first_bucket_bytes / sizeof(float));
  int64_t begin = 0, offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    parameters_.push_back({sizes[i].name, offset, sizes[i].numel, buckets_.size()});
    count_ += sizes[i].numel;
    offset += RoundUp(sizes[i].numel, kAlignment);
    const bool group_ends = i + 1 == sizes.size() || sizes[i + 1].group != sizes[i].group;
    if (offset - begin < cap && !group_ends) continue;
    offset = begin + RoundUp(offset - begin, shares_ * kAlignment);
    buckets_.push_back({begin, offset});
    groups_.push_back(sizes[i].group);
    begin = offset;
    cap = static_cast<int64_t>(options.bucket_bytes / sizeof(float));
  }
}

FlatRange Layout::Share(size_t bucket, int share) const {
  const int64_t size = buckets_[bucket].size() / shares_;
  const int64_t begin = buckets_[bucket].begin + share * size;
  return {begin, begin + size};
}

std::vector<FlatRange> Layout::Kept(Stage stage, Buffer buffer, int share) const {
  if (!IsSharded(stage, buffer)) return {{0, numel()}};
  std::vector<FlatRange> ranges;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) ranges.push_back(Share(bucket, share));
  return ranges;
}

std::vector<Segment> SegmentsOf(const Layout& layout, const std::vector<FlatRange>& ranges) {
  std::vector<Segment> segments;
  const auto& parameters = layout.parameters();
  size_t i = 0;
  int64_t local = 0;
  for (const FlatRange& range : ranges) {
    while (i < parameters.size() && parameters[i].offset + parameters[i].numel <= range.begin) ++i;
    for (size_t k = i; k < parameters.size() && parameters[k].offset < range.end; ++k) {
      const int64_t begin = std::max(range.begin, parameters[k].offset);
      const int64_t end = std::min(range.end, parameters[k].offset + parameters[k].numel);
      if (begin < end) segments.push_back({k, local + begin - range.begin, local + end - range.begin, begin});
    }
    local += range.size();
  }
  return segments;
}

int64_t TotalSize(const std::vector<FlatRange>& ranges) {
  int64_t total = 0;
  for (const FlatRange& range : ranges) total += range.size();
  return total;
}

}  // namespace lockstep::plan
