// Parts of a step (a pass, an update) as CUDA graphs: each is captured at its first call and replayed afterwards. If a
// part cannot be captured, capturing is switched off for the rest of the run. Passes have a graph for each shape of
// batches, from its fourth step on: before that libraries choose their algorithms for it and the allocator its sizes.
// The caller runs those eagerly, and batches beyond the most shapes. Graphs of all shapes share their memory. Used by
// the training thread.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/cuda_graph.h"
#include "engine/recipe.h"

namespace lockstep::engine {

class CapturedSteps {
 public:
  enum class Part {
    kPass,
    kPassWithExchange,  // the last of a step, where the exchange of gradients is captured with it
    kUpdate,
    kUpdateWithEma,  // an EMA of every n-th step makes two kinds of update
  };
  struct Key {
    Part part;
    bool discriminator = false;
    size_t shape = 0;  // of a pass: set here
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // `gave_up` is called once, with the reason, if a part cannot be captured.
  CapturedSteps(at::Device device, std::function<void(const std::string&)> gave_up);

  bool on() const { return graphs_ != nullptr; }
  void Stop() { graphs_.reset(), parts_.clear(); }
  // Whether a pass over the batch in this step is to be replayed. The same for all passes of one shape in a step: one
  // may use tensors of another. Called for every pass from the first step on, as it counts them.
  bool Takes(const TensorBatch& batch, uint64_t step);
  // Whether some pass was captured, so that updates follow.
  bool has_passes() const { return has_passes_; }
  // Drops all graphs because they are invalid (other parameters take part).
  void Discard() {
    parts_.clear();
    if (graphs_) graphs_->Renew();
  }

  // A pass over `batch`. `work` computes on the inputs it is given and returns the weight of its loss, which is the
  // result of every replay. nullopt: the pass was neither captured nor run.
  std::optional<double> ReplayPass(const Key& key, const TensorBatch& batch,
                                   const std::function<double(const TensorBatch& inputs)>& work);
  // False: not captured and not run.
  bool ReplayUpdate(const Key& key, const std::function<void()>& work);

 private:
  struct Captured {
    std::unique_ptr<CudaGraph> graph;
    double weight = 0;
  };
  // A shape of batches, and what its captured passes read.
  struct Shape {
    TensorBatch inputs;  // without fields: not captured yet
    std::map<std::string, std::pair<std::vector<int64_t>, at::ScalarType>> fields;
    uint64_t steps = 0;            // in which it was seen
    std::optional<uint64_t> last;  // of them
  };
  static constexpr size_t kMostShapes = 32;
  static constexpr uint64_t kEagerSteps = 3;
  Captured* Capture(const Key& key, const std::function<double()>& work);
  std::optional<size_t> ShapeOf(const TensorBatch& batch);

  std::function<void(const std::string&)> gave_up_;
  std::unique_ptr<GraphPool> graphs_;
  std::map<Key, Captured> parts_;
  std::vector<Shape> shapes_;
  bool has_passes_ = false;
};

}  // namespace lockstep::engine
