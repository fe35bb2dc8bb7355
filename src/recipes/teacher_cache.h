// A teacher's latents in the feature cache: which namespace they have, how a build fills it, and a source that brings
// them along with each clip. The key of a record is over every frame of the clip in its order, so latents of other
// frames are never found. What is missing or damaged is encoded live by the recipe. Owned by a recipe; the source is
// shared with the loader's threads.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "cache/arbiter.h"
#include "cache/build.h"
#include "cache/reader.h"
#include "data/source.h"
#include "data/sources.h"
#include "engine/recipe.h"
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
  bool required() const { return required_; }
  // May leave out reads that would be slower than the teacher.
  void ChooseByCost() { choose_ = true; }
  cache::Arbiter& arbiter() { return arbiter_; }

  // How much of the source is there, one line; an error if all is required and a part is known to be missing.
  Result<std::string> Coverage(const std::string& what, const data::Source& source,
                               const data::SourceConfig& clips) const;
  // `source` with what the cache has of each clip.
  std::shared_ptr<const data::Source> With(std::shared_ptr<const data::Source> source);
  // Takes the fields that With added out of the batch: features by name, and which samples have none.
  struct Found {
    std::vector<at::Tensor> features;  // latents, or mean and deviation: [N, ...]
    std::vector<int64_t> missing;
  };
  Found Take(engine::TensorBatch* batch);
  // So many clips had to be encoded instead. Says so at the first time.
  Status NoteLive(size_t clips, double seconds);
  std::vector<std::pair<std::string, double>> Metrics() const;

 private:
  friend class TeacherCacheSource;
  TeacherCache() = default;
  void Lookup(const std::byte* frames, std::span<std::byte* const> out);

  bool sampled_ = false, required_ = false;
  TeacherShapes shapes_;
  std::unique_ptr<cache::Reader> reader_;
  cache::Arbiter arbiter_;
  std::atomic<bool> choose_{false};
  std::atomic<uint64_t> hits_{0}, misses_{0}, damaged_{0}, chosen_{0}, live_{0};
  std::mutex mutex_;
  std::string first_reason_;  // why a record could not be read
  std::atomic<bool> said_{false};
  int reading_ = 0;  // threads that read now, and since when any does
  uint64_t since_read_ = 0;
  TimePoint busy_since_;
};

}  // namespace lockstep::recipes
