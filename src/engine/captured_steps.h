// Parts of a step (a pass, an update) as CUDA graphs: each is captured at its first call and replayed afterwards. If a
// part cannot be captured, capturing is switched off for the rest of the run. The caller runs batches of another shape
// eagerly. Used by the training thread.
#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

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
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  // `gave_up` is called once, with the reason, if a part cannot be captured.
  CapturedSteps(at::Device device, std::function<void(const std::string&)> gave_up);

  bool on() const { return graphs_ != nullptr; }
  void Stop() { graphs_.reset(), parts_.clear(); }
  // Whether a batch has the shapes of the captured passes.
  bool Fits(const TensorBatch& batch) const;
  // Whether some pass was captured, so that updates follow.
  bool has_passes() const { return !inputs_.fields.empty(); }
  // Drops all graphs because they are invalid (other parameters take part).
  void Discard() { parts_.clear(); }

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
  Captured* Capture(const Key& key, const std::function<double()>& work);

  std::function<void(const std::string&)> gave_up_;
  std::unique_ptr<GraphPool> graphs_;
  std::map<Key, Captured> parts_;
  TensorBatch inputs_;  // what captured passes read
};

}  // namespace lockstep::engine
