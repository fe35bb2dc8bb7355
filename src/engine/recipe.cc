#include "engine/recipe.h"

namespace lockstep::engine {

Result<Sources> HoldOut(std::shared_ptr<const data::Source> all, const Config& config) {
  const ValidationConfig& validation = config.data.validation;
  if (validation.fraction <= 0) return Sources{std::move(all), nullptr};
  Result<data::Split> split = data::SplitBySource(*all, validation.fraction, config.run.seed);
  if (!split.ok()) return split.status();
  if (validation.samples > 0 && split->validation.size() > validation.samples) {
    split->validation.resize(validation.samples);
  }
  return Sources{data::Subset(all, split->train), data::Subset(all, split->validation)};
}

}  // namespace lockstep::engine
