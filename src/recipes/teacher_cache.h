// A teacher's latents in the feature cache: which namespace they have, how a build fills it, and a source that brings
// them along with each clip. The key of a record is over every frame of the clip in its order, so latents of other
// frames are never found. What is missing or damaged is encoded live by the recipe. Owned by a recipe; the source is
// shared with the loader's threads.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "cache/arbiter.h"
#include "cache/build.h"
#include "cache/folder.h"
#include "data/source.h"
#include "data/sources.h"
#include "engine/recipe.h"
#include "recipes/feature_lookup.h"
#include "recipes/teacher.h"

namespace lockstep::recipes {

// Of the clips a teacher is asked about.
struct TeacherShapes {
  std::vector<int64_t> frames;   // of one clip: T, 3, H, W
  std::vector<int64_t> latents;  // likewise: t, c, h, w
};

// What the teacher's features are stored as. `sampled`: it gives a mean and a deviation.
Result<cache::Description> DescribeTeacher(const TeacherConfig& config, const TeacherShapes& shapes, bool sampled);

// Encodes all samples of a source that the cache has not got.
Result<cache::BuildProgress> BuildTeacherCache(const cache::Folder& folder, std::shared_ptr<const data::Source> source,
                                               const data::SourceConfig& clips, Teacher* teacher, int threads,
                                               const cache::BuildOptions& options);

class TeacherCache {
 public:
  // The namespace of this teacher below the root. Null where there is none yet, with what to say about it; an error
  // then if it is required.
  static Result<std::unique_ptr<TeacherCache>> Open(const TeacherConfig& config, const TeacherShapes& shapes,
                                                    std::string* note);

  bool sampled() const { return sampled_; }
  bool required() const { return lookup_->required(); }
  // May leave out reads that would be slower than the teacher.
  void ChooseByCost() { lookup_->ChooseByCost(); }
  cache::Arbiter& arbiter() { return lookup_->arbiter(); }

  // See FeatureLookup.
  Result<std::string> Coverage(const std::string& what, const data::Source& source, const data::Source* whole,
                               const data::SourceConfig& clips) const {
    return lookup_->Coverage(what, source, whole, clips);
  }
  Status NoteLive(size_t clips, double seconds) { return lookup_->NoteLive(clips, seconds); }
  std::vector<std::pair<std::string, double>> Metrics() const { return lookup_->Metrics(); }

  // `source` with what the cache has of each clip.
  std::shared_ptr<const data::Source> With(std::shared_ptr<const data::Source> source);
  // Takes the fields that With added out of the batch: features by name, and which samples have none.
  struct Found {
    std::vector<at::Tensor> features;  // latents, or mean and deviation: [N, ...]
    std::vector<int64_t> missing;
  };
  Found Take(engine::TensorBatch* batch);

 private:
  friend class TeacherCacheSource;
  TeacherCache() = default;

  bool sampled_ = false;
  TeacherShapes shapes_;
  std::unique_ptr<FeatureLookup> lookup_;
};

}  // namespace lockstep::recipes
