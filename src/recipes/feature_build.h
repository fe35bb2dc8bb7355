// Fills a namespace of the feature cache with what an encoder gives for the clips of a source: reads them ahead, finds
// out by their keys which are missing, encodes and hands over those. The key is over pictures as the source gives
// them: every frame of a clip in its context, or one frame where features are independent. One thread; every process
// of a build calls it for itself.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "cache/build.h"
#include "cache/folder.h"
#include "data/source.h"
#include "data/sources.h"

namespace lockstep::recipes {

// Of one record: `frames` has U8 pictures of the shape [T, 3, H, W], or [3, H, W] where features are independent.
cache::RecordKey KeyOfFrames(const cache::Folder& folder, const std::byte* frames, const std::vector<int64_t>& shape);

// How the samples of a source are cut into units.
cache::Plan PlanFor(const data::Source& source, const data::SourceConfig& clips, const cache::Description& description);

struct FeatureBuild {
  std::shared_ptr<const data::Source> source;  // its first field: U8 [T, 3, H, W]
  cache::Plan plan;
  int threads = 2;     // that decode
  uint64_t batch = 8;  // records encoded at once
  // U8 [n, T, 3, H, W], or [n, 3, H, W] where features are independent, to one tensor [n, ...] for each field, in the
  // namespace's own types.
  std::function<Result<std::vector<at::Tensor>>(const at::Tensor& frames)> encode = nullptr;
};

// Encodes all samples that the cache has not got.
Result<cache::BuildProgress> BuildFeatures(const cache::Folder& folder, const FeatureBuild& build,
                                           cache::BuildOptions options);

}  // namespace lockstep::recipes
