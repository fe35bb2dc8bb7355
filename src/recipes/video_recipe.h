// What recipes on video clips have in common: the keys of the section `data` that say which clips (kind, path, frames,
// size, stride, augmentation; one set or several that are mixed), and opening them. One field, "frames": U8
// [T, 3, H, W], RGB.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/sources.h"
#include "engine/recipe.h"
#include "recipes/cached_features.h"

namespace lockstep::recipes {

// The keys of a section `data` that say which clips, of one set. `index`: file of `lockstep data index`.
void DeclareClips(ConfigReader& reader, data::SourceConfig* clips, std::string* index);

class VideoRecipe : public engine::Recipe {
 public:
  void DeclareData(ConfigReader& reader, engine::DataConfig* data) override;
  void Shrink(engine::Config* config) override;
  void Join(engine::Ranks* ranks) override;
  Result<std::string> IndexData() override;
  void UseIndex(std::shared_ptr<const std::string> index) override;
  // Split by video into training and validation, each set of a mixture for itself.
  Result<engine::Sources> Open(const engine::Config& config) override;
  // For features of data.features. A recipe that has its own of these calls them.
  Status Start(at::Device device) override;
  Status Prepare(const engine::Pass& pass, engine::TensorBatch* batch) override;
  Status PrepareValidation(engine::TensorBatch* batch) override;
  std::vector<std::pair<std::string, double>> Metrics() override;

  data::SourceConfig& clips() { return clips_; }

 protected:
  data::SourceConfig clips_;  // the set, and what all sets of a mixture share: the form of a clip
  // The recipe takes batches of any height and width: data.buckets is a key. Set by its constructor.
  bool bucketed_ = false;
  // The recipe uses fields "features/<name>" where there are any: data.features is a section. Set by its constructor.
  bool with_features_ = false;

 private:
  struct Set {
    double weight = 1;
    data::SourceConfig source;
    std::string index;  // a file
  };
  data::SourceConfig SourceOf(const Set& set) const;
  Result<engine::Sources> OpenSets(const engine::Config& config) const;
  Result<engine::Sources> WithFeatures(engine::Sources sources, const engine::Config& config);

  std::string index_;     // a file
  std::vector<Set> mix_;  // empty: clips_ is the only set
  FeaturesConfig features_config_;
  std::unique_ptr<CachedFeatures> features_;
  std::string coverage_;  // what to say about them at the start
  bool main_ = true, reproducible_ = false;
};

}  // namespace lockstep::recipes
