// Samples to tensors: the loader of one rank at the edge to torch. Gives the passes of each step in order, on the
// rank's device; pinned memory where the device is a GPU. Owned by the training thread of its rank; not collective.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "data/sampler.h"
#include "engine/recipe.h"

namespace lockstep::engine {

struct FeedItem {
  TensorBatch batch;
  std::vector<data::SampleId> planned;  // those present and those left out
  std::vector<data::BadSample> bad;
  double wait_seconds = 0;
};

class Feed {
 public:
  // The samples of pass `n` of this rank, counted from the first step it is asked for.
  using Plan = std::function<std::vector<data::SampleId>(uint64_t n)>;

  Feed(std::shared_ptr<const data::Source> source, Plan plan, std::optional<uint64_t> passes,
       data::LoaderOptions options, at::Device device);
  Result<FeedItem> Next();

 private:
  std::shared_ptr<const data::Source> source_;
  Plan plan_;
  at::Device device_;
  uint64_t next_ = 0;
  std::unique_ptr<data::Loader> loader_;
};

}  // namespace lockstep::engine
