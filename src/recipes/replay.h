// Earlier fakes of a generator, for a discriminator that shall not forget them. The buffer is cut into lanes, one for
// each place in the global batch: pictures of the sample at place p go into lane p and come out for place p. A rank
// holds the lanes of its places, so content and draws do not depend on the number of ranks, and another number of ranks
// is a matter of handing lanes out anew.
//
// The host draws (Draw: from seed, step and lane alone), the device moves (Put, Get: no host value, fit for a captured
// graph). Owned by a recipe, used by its training thread. Gather is collective; nothing else is.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/ranks.h"
#include "engine/recipe.h"

namespace lockstep::recipes {

// The places of the global batch that belong to one rank: contiguous.
struct LaneRange {
  uint64_t first = 0, count = 0;
};
LaneRange LanesOf(const engine::TrainConfig& train, int rank, int size);

struct ReplayShape {
  uint64_t lanes = 1;    // of all ranks together: train.batch
  uint64_t entries = 1;  // of one lane
  std::vector<int64_t> image, context;
  at::ScalarType type = at::kFloat;
  uint64_t entry_bytes() const;
};

// What happens to the pictures of one sample in one step: drawn in the order of the members, all of one member first.
struct ReplayDraw {
  std::vector<int64_t> coin;  // 1: shown as a fake, 0: its real one is shown
  std::vector<int64_t> slot;  // where it is kept, all different: the next free ones, later random ones
  std::vector<int64_t> pick;  // which kept one may be shown in its place; one kept just now counts
};

class Replay {
 public:
  // `mine` are the lanes of this rank; `entries` must be at least the pictures of one sample.
  Replay(ReplayShape shape, LaneRange mine, at::Device device);

  // Slots and picks count within Put's and Get's buffer. Advances the lane; a lane of another rank is an error.
  Result<ReplayDraw> Draw(uint64_t seed, uint64_t step, uint64_t lane, int64_t pictures);

  void Put(const at::Tensor& slots, const at::Tensor& images, const at::Tensor& contexts);
  std::pair<at::Tensor, at::Tensor> Get(const at::Tensor& picks) const;

  // All lanes of all ranks to the host memory of rank 0; what Save then describes. The same names, types and shapes
  // always; on other ranks the content is left as it is.
  Status Gather(const engine::TrainConfig& train, engine::Ranks* ranks);
  void Save(engine::RecipeState* state);
  // Takes this rank's lanes out of a state of all lanes and lets the rest go.
  Status Restore(const engine::RecipeState& state);

  const ReplayShape& shape() const { return shape_; }
  uint64_t filled(uint64_t lane) const { return filled_[lane]; }

 private:
  void AllocateAll();

  ReplayShape shape_;
  LaneRange mine_;
  at::Tensor images_, contexts_;                       // [lanes of this rank * entries, ...]
  std::vector<uint64_t> filled_;                       // per lane, of all ranks; known for this rank's own
  at::Tensor all_images_, all_contexts_, all_filled_;  // host; [lanes, entries, ...], [lanes]
};

}  // namespace lockstep::recipes
