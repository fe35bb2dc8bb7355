#include "data/mixed_source.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "data/random.h"

namespace lockstep::data {
namespace {

std::string FormOf(const std::vector<Field>& fields) {
  constexpr const char* kTypes[] = {"u8", "f32", "i64"};
  std::vector<std::string> all;
  for (const Field& field : fields) {
    std::vector<std::string> sides;
    for (const int64_t side : field.shape) sides.push_back(std::to_string(side));
    all.push_back(fmt::format("{} {} [{}]", field.name, kTypes[static_cast<size_t>(field.type)], Join(sides, ", ")));
  }
  return Join(all, ", ");
}

}  // namespace

MixedSource::MixedSource(std::vector<std::shared_ptr<const Source>> parts, std::shared_ptr<const Mixture> mixture)
    : parts_(std::move(parts)), mixture_(std::move(mixture)) {
  for (const auto& part : parts_) firsts_.push_back(firsts_.back() + part->size());
}

Result<std::shared_ptr<const MixedSource>> MixedSource::Create(std::vector<std::shared_ptr<const Source>> parts,
                                                               std::shared_ptr<const Mixture> mixture) {
  if (parts.empty() || (mixture && mixture->parts() != parts.size())) {
    return Status(Code::kInternal,
                  fmt::format("{} data sets are mixed as {}", parts.size(), mixture ? mixture->parts() : parts.size()));
  }
  const std::string wanted = FormOf(parts.front()->fields());
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string found = FormOf(parts[i]->fields());
    if (found == wanted && BucketSizes(*parts[i]).size() <= 1) continue;
    return Status(Code::kUsage,
                  fmt::format("data sets of different form cannot be mixed: a sample of set 0 is {}, of set {} {}",
                              wanted, i, found),
                  "mix sets of one form, or train on them one after the other");
  }
  return std::shared_ptr<const MixedSource>(new MixedSource(std::move(parts), std::move(mixture)));
}

MixedSource::Place MixedSource::Find(uint64_t index) const {
  const auto after = std::ranges::upper_bound(firsts_, index);
  const auto part = static_cast<size_t>(after - firsts_.begin()) - 1;
  return {part, index - firsts_[part]};
}

std::string MixedSource::Name(uint64_t index) const {
  const Place place = Find(index);
  return parts_[place.part]->Name(place.index);
}

// Two sets may have videos of one name.
std::string MixedSource::Origin(uint64_t index) const {
  const Place place = Find(index);
  return fmt::format("{}/{}", place.part, parts_[place.part]->Origin(place.index));
}

// With numbers of its own for each set: sample 7 of one is not cropped as sample 7 of another.
Status MixedSource::Read(const Draw& draw, std::span<std::byte* const> out) const {
  const Place place = Find(draw.index);
  Draw inner = draw;
  inner.index = place.index;
  inner.seed = Fold(draw.seed, place.part);
  return parts_[place.part]->Read(inner, out);
}

std::string MixedSource::Describe() const {
  std::vector<std::string> all;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::string one = parts_[i]->Describe();
    all.push_back(mixture_ ? fmt::format("{:.4g} % {}", 100 * mixture_->share(i), one) : one);
  }
  return Join(all, " + ");
}

std::string MixedSource::Digest() const {
  uint64_t digest = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::string one = fmt::format("{} x {}", mixture_ ? mixture_->per_period(i) : 1, parts_[i]->Digest());
    digest = XXH64(one.data(), one.size(), digest);
  }
  return fmt::format("xxh64:{:016x}", digest);
}

std::string JoinIndexes(const std::vector<std::string>& indexes) {
  std::string joined;
  for (const std::string& index : indexes) joined += fmt::format("{}\n{}", index.size(), index);
  return joined;
}

Result<std::vector<std::string>> SplitIndexes(std::string_view joined) {
  std::vector<std::string> indexes;
  while (!joined.empty()) {
    size_t bytes = 0;
    const auto [end, error] = std::from_chars(joined.data(), joined.data() + joined.size(), bytes);
    joined.remove_prefix(static_cast<size_t>(end - joined.data()));
    if (error != std::errc() || joined.empty() || joined.front() != '\n' || joined.size() - 1 < bytes) {
      return Status(Code::kInternal, "the indexes of the data sets arrived cut or changed");
    }
    indexes.emplace_back(joined.substr(1, bytes));
    joined.remove_prefix(1 + bytes);
  }
  return indexes;
}

}  // namespace lockstep::data
