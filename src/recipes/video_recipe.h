// What recipes on video clips have in common: the keys of the section `data` that say which clips (kind, path, frames,
// size, stride, augmentation), and opening them. One field, "frames": U8 [T, 3, H, W], RGB.
#pragma once

#include <memory>
#include <string>

#include "data/sources.h"
#include "engine/recipe.h"

namespace lockstep::recipes {

// The keys of a section `data` that say which clips. `index`: file of `lockstep data index`.
void DeclareClips(ConfigReader& reader, data::SourceConfig* clips, std::string* index);

class VideoRecipe : public engine::Recipe {
 public:
  void DeclareData(ConfigReader& reader, engine::DataConfig* data) override;
  void Shrink(engine::Config* config) override;
  Result<std::string> IndexData() override {
    return index_.empty() ? data::IndexSource(clips_) : data::ReadIndexFile(index_);
  }
  void UseIndex(std::shared_ptr<const std::string> index) override { clips_.index = std::move(index); }
  // Split by video into training and validation.
  Result<engine::Sources> Open(const engine::Config& config) override;

  data::SourceConfig& clips() { return clips_; }

 protected:
  data::SourceConfig clips_;
  std::string index_;  // a file
};

}  // namespace lockstep::recipes
