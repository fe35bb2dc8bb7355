// Samples to tensors: the loader of one rank at the edge to torch. Gives the passes of each step in order, on the
// rank's device; where that is a GPU, from pinned memory and without waiting for the copy. Owned by the training thread
// of its rank; not collective.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "data/random.h"
#include "data/sampler.h"
#include "engine/recipe.h"

namespace lockstep::engine {

struct FeedItem {
  TensorBatch batch;
  std::vector<data::SampleId> planned;  // those present, those that could not be read and those left out
  std::vector<data::BadSample> bad;
  double wait_seconds = 0;

  // What torch's generators are seeded with for this pass.
  uint64_t Seed(uint64_t seed, uint64_t step) const {
    if (planned.empty()) return seed;
    const uint64_t key = data::Fold(data::Fold(seed, step), planned.front().epoch);
    return data::Fold(key, planned.front().position) >> 1;
  }
};

class Feed {
 public:
  // The samples of pass `n` of this rank, counted from the first step it is asked for.
  struct Planned {
    std::vector<data::SampleId> ids;
    uint64_t first_lane = 0;  // of the first of them; the others follow
  };
  using Plan = std::function<Planned(uint64_t n)>;

  Feed(std::shared_ptr<const data::Source> source, Plan plan, std::optional<uint64_t> passes,
       data::LoaderOptions options, at::Device device);
  Result<FeedItem> Next();
  // See data::Loader.
  void LeaveOut(uint64_t index) { loader_->LeaveOut(index); }
  data::LoaderStats stats() const { return loader_->stats(); }
  void SetThreads(int threads) { loader_->SetThreads(threads); }

 private:
  std::shared_ptr<const data::Source> source_;
  Plan plan_;
  at::Device device_;
  uint64_t next_ = 0;
  std::unique_ptr<data::Loader> loader_;
  // Host memory of copies that may still be under way.
  struct InFlight {
    c10::Event done;
    std::vector<at::Tensor> host;
  };
  std::deque<InFlight> in_flight_;
};

}  // namespace lockstep::engine
