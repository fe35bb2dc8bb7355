#include "data/bucketed_source.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "base/digits.h"
#include "base/text.h"
#include "data/random.h"

namespace lockstep::data {
namespace {

class BucketedSource final : public Source {
 public:
  BucketedSource(std::vector<std::shared_ptr<const Source>> parts, const std::vector<ImageSize>& sizes,
                 std::string what)
      : parts_(std::move(parts)), sizes_(sizes), what_(std::move(what)) {
    for (const auto& part : parts_) firsts_.push_back(firsts_.back() + part->size());
  }

  const std::vector<Field>& fields() const override { return parts_.front()->fields(); }
  const std::vector<Field>& FieldsOf(uint64_t index) const override { return parts_[PartOf(index)]->fields(); }
  uint64_t size() const override { return firsts_.back(); }
  std::string Name(uint64_t index) const override { return parts_[PartOf(index)]->Name(Inner(index)); }
  std::string Origin(uint64_t index) const override { return parts_[PartOf(index)]->Origin(Inner(index)); }
  // With numbers of its own for each bucket: sample 7 of one is not cropped as sample 7 of another.
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    Draw inner = draw;
    inner.index = Inner(draw.index);
    inner.seed = Fold(draw.seed, PartOf(draw.index));
    return parts_[PartOf(draw.index)]->Read(inner, out);
  }
  std::string Describe() const override {
    std::vector<std::string> all;
    for (size_t i = 0; i < parts_.size(); ++i) {
      all.push_back(fmt::format("{} of {}x{}", parts_[i]->size(), sizes_[i].height, sizes_[i].width));
    }
    return fmt::format("{}: {} in {}: {}", what_, Count(static_cast<int64_t>(size()), "sample"),
                       Count(static_cast<int64_t>(parts_.size()), "bucket"), Join(all, ", "));
  }
  std::string Digest() const override {
    uint64_t digest = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const std::string one = fmt::format("{}x{} {}", sizes_[i].height, sizes_[i].width, parts_[i]->Digest());
      digest = XXH64(one.data(), one.size(), digest);
    }
    return fmt::format("xxh64:{:016x}", digest);
  }

 private:
  size_t PartOf(uint64_t index) const {
    return static_cast<size_t>(std::ranges::upper_bound(firsts_, index) - firsts_.begin()) - 1;
  }
  uint64_t Inner(uint64_t index) const { return index - firsts_[PartOf(index)]; }

  std::vector<std::shared_ptr<const Source>> parts_;
  std::vector<ImageSize> sizes_;
  std::string what_;
  std::vector<uint64_t> firsts_ = {0};  // index of each part's first sample, and the end
};

}  // namespace

Result<std::vector<ImageSize>> ParseSizes(const std::vector<std::string>& texts) {
  constexpr int kLeast = 8, kMost = 8192;
  std::vector<ImageSize> sizes;
  for (const std::string& text : texts) {
    const size_t cross = text.find('x');
    const auto side = [&](std::string_view digits) { return ParseDigits<int>(digits).value_or(0); };
    ImageSize size;
    if (cross != std::string::npos) {
      size = {side(std::string_view(text).substr(0, cross)), side(std::string_view(text).substr(cross + 1))};
    }
    if (std::min(size.height, size.width) < kLeast || std::max(size.height, size.width) > kMost) {
      return Status(Code::kUsage, fmt::format("'{}' is no size of a bucket: expected HEIGHTxWIDTH, each {} to {}",
                                              Printable(text), kLeast, kMost));
    }
    if (std::ranges::find(sizes, size) != sizes.end()) {
      return Status(Code::kUsage, fmt::format("the bucket {} is there twice", text));
    }
    sizes.push_back(size);
  }
  return sizes;
}

size_t ChooseBucket(const std::vector<ImageSize>& buckets, const ImageSize& picture) {
  if (picture.height <= 0 || picture.width <= 0) return 0;
  // |log(ratio / ratio of the bucket)|, as a quotient of whole numbers at least 1: exact, so equal ones compare equal.
  const auto distance = [&](const ImageSize& bucket) {
    const auto a = static_cast<double>(int64_t{picture.width} * bucket.height);
    const auto b = static_cast<double>(int64_t{picture.height} * bucket.width);
    return std::max(a, b) / std::min(a, b);
  };
  const auto fills = [&](const ImageSize& bucket) {
    return bucket.height <= picture.height && bucket.width <= picture.width;
  };
  const auto area = [](const ImageSize& size) { return int64_t{size.height} * size.width; };
  size_t best = 0;
  for (size_t i = 1; i < buckets.size(); ++i) {
    const double here = distance(buckets[i]), before = distance(buckets[best]);
    bool better = here < before;
    if (here == before && fills(buckets[i]) == fills(buckets[best])) {
      better = fills(buckets[i]) == (area(buckets[i]) > area(buckets[best]));
    } else if (here == before) {
      better = fills(buckets[i]);
    }
    if (better) best = i;
  }
  return best;
}

std::unique_ptr<Source> JoinBuckets(std::vector<std::shared_ptr<const Source>> parts,
                                    const std::vector<ImageSize>& sizes, std::string what) {
  return std::make_unique<BucketedSource>(std::move(parts), sizes, std::move(what));
}

}  // namespace lockstep::data
