#include "engine/recipe.h"

#include <numeric>

namespace lockstep::engine {

Result<Sources> HoldOut(std::shared_ptr<const data::Source> all, const Config& config) {
  const ValidationConfig& validation = config.data.validation;
  if (validation.fraction <= 0) return Sources{std::move(all), nullptr};
  Result<data::Split> split = data::SplitBySource(*all, validation.fraction, config.run.seed);
  if (!split.ok()) return split.status();
  if (validation.samples > 0 && split->validation.size() > validation.samples) {
    split->validation.resize(validation.samples);
  }
  return Sources{data::Subset(all, split->train), data::Subset(all, split->validation), nullptr, all};
}

namespace {

// The first samples of each set, as many of one as of another where they have them, together at most `most`.
void Limit(std::vector<std::shared_ptr<const data::Source>>* sets, uint64_t most) {
  std::vector<uint64_t> taken(sets->size(), 0);
  uint64_t all = 0;
  for (bool more = true; more;) {
    more = false;
    for (size_t set = 0; set < sets->size() && all < most; ++set) {
      if (taken[set] == (*sets)[set]->size()) continue;
      ++taken[set];
      ++all;
      more = true;
    }
  }
  for (size_t set = 0; set < sets->size(); ++set) {
    if (taken[set] == (*sets)[set]->size()) continue;
    std::vector<uint64_t> first(taken[set]);
    std::iota(first.begin(), first.end(), 0);
    (*sets)[set] = data::Subset((*sets)[set], std::move(first));
  }
}

}  // namespace

Result<Sources> Mix(const std::vector<Sources>& sets, const std::vector<double>& weights, const Config& config) {
  std::vector<std::shared_ptr<const data::Source>> train, validation;
  std::vector<data::Mixture::Part> parts;
  for (size_t i = 0; i < sets.size(); ++i) {
    train.push_back(sets[i].train);
    if (sets[i].validation) validation.push_back(sets[i].validation);
    parts.push_back({sets[i].train->size(), weights[i]});
  }
  Result<data::Mixture> mixture = data::Mixture::Create(parts);
  if (!mixture.ok()) return mixture.status();
  Sources mixed;
  mixed.mixture = std::make_shared<const data::Mixture>(std::move(*mixture));
  const auto source = data::MixedSource::Create(std::move(train), mixed.mixture);
  if (!source.ok()) return source.status();
  mixed.train = *source;
  if (validation.empty()) return mixed;
  if (config.data.validation.samples > 0) Limit(&validation, config.data.validation.samples);
  const auto held_out = data::MixedSource::Create(std::move(validation), nullptr);
  if (!held_out.ok()) return held_out.status();
  mixed.validation = *held_out;
  return mixed;
}

}  // namespace lockstep::engine
