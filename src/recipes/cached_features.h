// Features of a frozen encoder beside every sample of a training, from a cache that `lockstep cache build --config
// FILE` filled: fields "features/<name>". The same file says which encoder: what is missing or damaged is encoded live,
// as the policy allows. Owned by a recipe; the source is shared with the loader's threads. Not collective.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "data/source.h"
#include "engine/recipe.h"
#include "recipes/clip_encoder.h"
#include "recipes/encoder_cache.h"
#include "recipes/feature_lookup.h"

namespace lockstep::recipes {

struct FeaturesConfig {
  std::string config;  // the file of the build; empty: no features
  std::string policy = "auto";
};
void DeclareFeatures(ConfigReader& reader, FeaturesConfig* config);

class CachedFeatures {
 public:
  // The namespace that the file describes, for samples whose frames have this shape: [T, 3, H, W]. Errors: there is
  // none or more than one, or a type that a field of a sample cannot have.
  static Result<std::unique_ptr<CachedFeatures>> Open(const FeaturesConfig& config, const std::vector<int64_t>& frames);

  // `source` with its features, and whether they are there. Half types become float32.
  std::shared_ptr<const data::Source> With(std::shared_ptr<const data::Source> source) const;
  // One line for the start of a run; see FeatureLookup.
  Result<std::string> Coverage(const std::string& what, const data::Source& source, const data::Source* whole,
                               const data::SourceConfig& clips) const {
    return lookup_->Coverage(what, source, whole, clips);
  }

  // Loads the encoder, unless nothing may be encoded. `choose`: a batch may be encoded where that is faster than
  // reading.
  Status Start(at::Device device, bool choose);
  // Encodes what is missing in a batch, and takes the field out that says so.
  Status Fill(engine::TensorBatch* batch);
  std::vector<std::pair<std::string, double>> Metrics() const { return lookup_->Metrics(); }

 private:
  friend class FeatureSource;
  CachedFeatures() = default;
  bool independent() const { return lookup_->folder().description().context == cache::Context::kIndependent; }

  FeaturesConfig config_;
  EncoderCacheConfig build_;
  std::vector<int64_t> frames_;      // of a sample
  std::vector<int64_t> record_;      // of a record: the same, or one frame
  std::vector<data::Field> fields_;  // that a sample gets, then whether they are there
  std::unique_ptr<FeatureLookup> lookup_;
  std::unique_ptr<ClipEncoder> encoder_;
};

}  // namespace lockstep::recipes
