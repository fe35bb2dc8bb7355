// What recipes on video clips have in common: the keys of the section `data` that say which clips (kind, path, frames,
// size, stride, augmentation; one set or several that are mixed), and opening them. One field, "frames": U8
// [T, 3, H, W], RGB.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/sources.h"
#include "engine/recipe.h"

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

  data::SourceConfig& clips() { return clips_; }

 protected:
  data::SourceConfig clips_;  // the set, and what all sets of a mixture share: the form of a clip
  // The recipe takes batches of any height and width: data.buckets is a key. Set by its constructor.
  bool bucketed_ = false;

 private:
  struct Set {
    double weight = 1;
    data::SourceConfig source;
    std::string index;  // a file
  };
  data::SourceConfig SourceOf(const Set& set) const;

  std::string index_;     // a file
  std::vector<Set> mix_;  // empty: clips_ is the only set
};

}  // namespace lockstep::recipes
