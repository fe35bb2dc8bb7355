// Data parallelism with the same bits on any number of ranks: every backward is one canonical shard of the global
// batch, and gradients are added over a fixed tree (tree_sum.h). Nothing is sent before the last backward, which is the
// price beside the smaller batches.
#pragma once

#include "engine/flat.h"
#include "engine/ranks.h"
#include "engine/strategy.h"
#include "engine/tree_sum.h"

namespace lockstep::engine {

class CanonicalDdp : public ParallelStrategy {
 public:
  CanonicalDdp(uint64_t shards, FlatParameters* flat, Ranks* ranks);

  void BeginStep() override;
  void BeginBackward(bool /*last*/) override {}
  Status EndBackward(Backward outcome) override;
  void Replayed() override {}
  Status FinishGradients() override;
  Status FinishParameters() override { return Status::Ok(); }
  void TrainableChanged() override;
  const std::vector<bool>& used() const override { return trainable_; }
  std::vector<FlatRange> OwnedRanges() const override { return {{0, flat_->numel()}}; }
  double exposed_seconds() const override { return exposed_seconds_; }

 private:
  FlatParameters* flat_;
  TreeSum sum_;
  std::vector<bool> trainable_;
  double exposed_seconds_ = 0;
};

}  // namespace lockstep::engine
