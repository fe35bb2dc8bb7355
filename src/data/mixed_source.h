// Several sources with equal fields as one: the samples of the first, then those of the second, and so on. In which
// order they are taken, and how often, is the sampler's business (mixture.h). Any thread, as every Source.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/mixture.h"
#include "data/source.h"

namespace lockstep::data {

class MixedSource final : public Source {
 public:
  // `mixture` has a part for each source; null where all samples count alike (validation). Errors: sources that differ
  // in fields, types or shapes.
  static Result<std::shared_ptr<const MixedSource>> Create(std::vector<std::shared_ptr<const Source>> parts,
                                                           std::shared_ptr<const Mixture> mixture);

  struct Place {
    size_t part = 0;
    uint64_t index = 0;  // into it
  };
  Place Find(uint64_t index) const;
  uint64_t first(size_t part) const { return firsts_[part]; }

  const std::vector<Field>& fields() const override { return parts_.front()->fields(); }
  uint64_t size() const override { return firsts_.back(); }
  std::string Name(uint64_t index) const override;
  std::string Origin(uint64_t index) const override;
  Status Read(const Draw& draw, std::span<std::byte* const> out) const override;
  std::string Describe() const override;
  // Of the sets and of what is drawn from each of them.
  std::string Digest() const override;

 private:
  MixedSource(std::vector<std::shared_ptr<const Source>> parts, std::shared_ptr<const Mixture> mixture);

  std::vector<std::shared_ptr<const Source>> parts_;
  std::shared_ptr<const Mixture> mixture_;
  std::vector<uint64_t> firsts_ = {0};  // index of each part's first sample, and the end
};

// What one rank has looked up for each set (Recipe::IndexData) as one text, and apart again.
std::string JoinIndexes(const std::vector<std::string>& indexes);
Result<std::vector<std::string>> SplitIndexes(std::string_view joined);

}  // namespace lockstep::data
