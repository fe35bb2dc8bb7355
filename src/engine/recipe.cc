#include "engine/recipe.h"

#include "data/sources.h"

namespace lockstep::engine {

Result<Sources> Recipe::Open(const Config& config) {
  Result<std::unique_ptr<data::Source>> opened = data::OpenSource(config.data.source);
  if (!opened.ok()) return opened.status().Context(config.data.source.path.empty() ? "data" : "data.path");
  const std::shared_ptr<const data::Source> all = std::move(*opened);
  const ValidationConfig& validation = config.data.validation;
  if (validation.fraction <= 0) return Sources{all, nullptr};
  Result<data::Split> split = data::SplitBySource(*all, validation.fraction, config.run.seed);
  if (!split.ok()) return split.status();
  if (validation.samples > 0 && split->validation.size() > validation.samples) {
    split->validation.resize(validation.samples);
  }
  return Sources{data::Subset(all, split->train), data::Subset(all, split->validation)};
}

}  // namespace lockstep::engine
