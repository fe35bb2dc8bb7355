#include "data/source.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"
#include "data/random.h"

namespace lockstep::data {
namespace {

class SubsetSource final : public Source {
 public:
  SubsetSource(std::shared_ptr<const Source> source, std::vector<uint64_t> indices)
      : source_(std::move(source)), indices_(std::move(indices)) {}

  const std::vector<Field>& fields() const override {
    return indices_.empty() ? source_->fields() : source_->FieldsOf(indices_.front());
  }
  const std::vector<Field>& FieldsOf(uint64_t index) const override { return source_->FieldsOf(indices_[index]); }
  uint64_t size() const override { return indices_.size(); }
  std::string Name(uint64_t index) const override { return source_->Name(indices_[index]); }
  std::string Origin(uint64_t index) const override { return source_->Origin(indices_[index]); }
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override {
    Draw inner = draw;
    inner.index = indices_[draw.index];
    return source_->Read(inner, out);
  }
  std::string Describe() const override {
    return fmt::format("{} of {} of {}", indices_.size(), Count(static_cast<int64_t>(source_->size()), "sample"),
                       source_->Describe());
  }
  std::string Digest() const override {
    const std::string base = source_->Digest();
    const uint64_t seed = XXH64(base.data(), base.size(), 0);
    return fmt::format("xxh64:{:016x}", static_cast<uint64_t>(XXH64(indices_.data(), indices_.size() * 8, seed)));
  }

 private:
  std::shared_ptr<const Source> source_;
  std::vector<uint64_t> indices_;
};

// Samples by origin, and the samples of the chosen origins against the rest.
std::map<std::string, std::vector<uint64_t>> ByOrigin(const Source& source) {
  std::map<std::string, std::vector<uint64_t>> origins;
  for (uint64_t i = 0; i < source.size(); ++i) origins[source.Origin(i)].push_back(i);
  return origins;
}

Split Divide(const std::map<std::string, std::vector<uint64_t>>& origins, const std::set<std::string>& validation) {
  Split split;
  for (const auto& [origin, indices] : origins) {
    auto& side = validation.contains(origin) ? split.validation : split.train;
    side.insert(side.end(), indices.begin(), indices.end());
  }
  std::ranges::sort(split.train);
  std::ranges::sort(split.validation);
  return split;
}

}  // namespace

size_t SizeOf(ElementType type) {
  switch (type) {
    case ElementType::kU8:
      return 1;
    case ElementType::kF32:
      return 4;
    case ElementType::kI64:
      return 8;
  }
  return 0;
}

size_t Field::elements() const {
  size_t count = 1;
  for (int64_t n : shape) count *= static_cast<size_t>(n);
  return count;
}

size_t Field::bytes() const { return elements() * SizeOf(type); }

std::vector<uint64_t> BucketSizes(const Source& source) {
  std::vector<uint64_t> sizes;
  for (uint64_t start = 0; start < source.size(); start += sizes.back()) {
    const std::vector<Field>* fields = &source.FieldsOf(start);
    // The first sample after this one that is of another bucket.
    uint64_t low = start + 1, high = source.size();
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (&source.FieldsOf(middle) == fields) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    sizes.push_back(low - start);
  }
  return sizes;
}

std::unique_ptr<Source> Subset(std::shared_ptr<const Source> source, std::vector<uint64_t> indices) {
  return std::make_unique<SubsetSource>(std::move(source), std::move(indices));
}

Result<Split> SplitBySource(const Source& source, double fraction, uint64_t seed) {
  if (!(fraction > 0 && fraction < 1)) {
    return Status(Code::kUsage,
                  fmt::format("the validation fraction is {}; expected more than 0 and less than 1", fraction));
  }
  const auto origins = ByOrigin(source);
  if (origins.size() < 2) {
    return Status(
        Code::kUsage,
        fmt::format("cannot hold out validation data: {} from {}",
                    source.size() == 1 ? "the only sample comes" : fmt::format("all {} samples come", source.size()),
                    origins.empty() ? "nowhere" : "'" + origins.begin()->first + "'"),
        "training and validation never share a video: give at least two, or a validation source of its own");
  }
  std::vector<std::pair<uint64_t, std::string>>
      order;  // hash, then name: equal hashes must not depend on anything else
  order.reserve(origins.size());
  const uint64_t key = Random(seed, 0, 0, Purpose::kSplit).Next();
  for (const auto& [origin, indices] : origins) order.emplace_back(XXH64(origin.data(), origin.size(), key), origin);
  std::ranges::sort(order);
  const auto wanted = static_cast<int64_t>(std::llround(fraction * static_cast<double>(order.size())));
  const int64_t count = std::clamp<int64_t>(wanted, 1, static_cast<int64_t>(order.size()) - 1);
  std::set<std::string> validation;
  for (int64_t i = 0; i < count; ++i) validation.insert(order[i].second);
  return Divide(origins, validation);
}

Result<Split> SplitByNames(const Source& source, const std::vector<std::string>& validation_origins) {
  const auto origins = ByOrigin(source);
  std::vector<std::string> known;
  known.reserve(origins.size());
  for (const auto& [origin, indices] : origins) known.push_back(origin);
  std::set<std::string> validation;
  for (const std::string& name : validation_origins) {
    if (!origins.contains(name)) {
      return Status(Code::kUsage, fmt::format("validation names '{}', but the data has no such video{}", name,
                                              DidYouMean(name, known)));
    }
    validation.insert(name);
  }
  if (validation.empty()) return Status(Code::kUsage, "the list of validation videos is empty");
  if (validation.size() == origins.size()) {
    return Status(Code::kUsage,
                  fmt::format("all {} videos are named for validation: none is left to train on", origins.size()));
  }
  return Divide(origins, validation);
}

}  // namespace lockstep::data
