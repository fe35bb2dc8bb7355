// Data parallelism: every rank holds the whole model; gradients are summed over ranks, bucket by bucket, while backward
// still computes the next ones. A bucket is a range of the flat gradient buffer, so nothing is packed or copied; in
// shared memory it is reduced where autograd wrote it. Buckets start in the order of the buffer on every rank,
// whatever order gradients come in.
//
// In the reproducible form every backward is one canonical shard of the global batch, and gradients are added over a
// fixed tree (tree_sum.h), so that the bits are the same on any number of ranks. Nothing is sent before the last
// backward then; this and the smaller batches are the cost.
//
// Hooks sit on the parameters themselves, so it does not matter through which method or submodule the loss was
// computed.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/flat.h"
#include "engine/ranks.h"
#include "engine/strategy.h"
#include "engine/tree_sum.h"

namespace lockstep::engine {

class Ddp : public Replicated {
 public:
  Ddp(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks);
  ~Ddp() override;

  void BeginStep() override;
  void BeginBackward(bool last) override;
  Status EndBackward(Backward outcome) override;
  Status FinishGradients() override;
  bool captures_exchange() const override { return exchanges() && !tree_ && ranks_->tensors().recordable(); }
  void BeginCapture(bool last) override { BeginBackward(last && captures_exchange()); }
  Status EndCapture(bool last) override;
  Status Replayed(bool last) override;
  void TrainableChanged() override;
  const std::vector<bool>& used() const override { return used_; }
  double exposed_seconds() const override { return exposed_seconds_; }

 protected:
  // With the lock held: starts the exchange of a bucket, in the order of buckets.
  virtual void Launch(size_t bucket);
  // With the lock held: a gradient that autograd did not write into the buffer is taken there. `before`: how often this
  // parameter's gradient came in this backward, and whether it did in this step.
  virtual void Take(size_t parameter, int before, bool touched);
  // Every bucket up to this one, complete or not.
  void LaunchUpTo(size_t end);
  Status WaitForExchange();
  Status AgreeOnUsed();
  bool exchanges() const { return config_.reduce && (ranks_->size() > 1 || config_.alone || config_.host_parameters); }
  const std::vector<FlatRange>& buckets() const { return flat_->layout().buckets(); }
  bool came(size_t parameter) const { return arrived_[parameter] > 0; }

  StrategyConfig config_;
  std::recursive_mutex mutex_;           // gradients come on any thread of autograd
  std::vector<comm::TensorWork> works_;  // per bucket
  std::optional<TreeSum> tree_;          // reproducible
  double exposed_seconds_ = 0;

 private:
  class Hook;
  void OnGradient(size_t parameter);  // any thread of autograd
  void LaunchReady();
  Status CheckAllCame() const;
  size_t bucket_of(size_t parameter) const { return flat_->layout().parameters()[parameter].bucket; }

  // Tensors hold their accumulators only weakly; without this strong reference the hooks would vanish. The type of the
  // pointer differs between versions of LibTorch.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Accumulator, uintptr_t>> hooks_;

  bool sending_ = false;       // this backward's gradients are final
  std::vector<int> arrived_;   // gradients per parameter in this backward
  std::vector<int> expected_;  // with static_graph: learnt; 0: unused
  bool learnt_ = false;
  std::vector<int> missing_;  // per bucket: parameters still to come
  size_t next_bucket_ = 0;    // the first one not yet launched
  std::string repeated_;      // a parameter whose gradient came again after its bucket had left
  std::vector<bool> trainable_, touched_, used_;
};

}  // namespace lockstep::engine
