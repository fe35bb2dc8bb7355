// Data parallelism with the same bits on any number of ranks: every backward is one canonical shard of the global
// batch, and gradients are added over a fixed tree (tree_sum.h). Nothing is sent before the last backward, so the
// exchange does not overlap with it; this and the smaller batches are the cost.
#pragma once

#include "engine/flat.h"
#include "engine/ranks.h"
#include "engine/strategy.h"
#include "engine/tree_sum.h"

namespace lockstep::engine {

class CanonicalDdp : public Replicated {
 public:
  CanonicalDdp(uint64_t shards, FlatParameters* flat, Ranks* ranks);

  void BeginStep() override;
  void BeginBackward(bool /*last*/) override {}
  Status EndBackward(Backward outcome) override;
  bool captures_exchange() const override { return false; }
  void BeginCapture(bool /*last*/) override {}
  Status EndCapture(bool /*last*/) override { return Status::Ok(); }
  Status Replayed(bool /*last*/) override { return EndBackward(Backward::kDone); }
  Status FinishGradients() override;
  void TrainableChanged() override;
  const std::vector<bool>& used() const override { return trainable_; }
  double exposed_seconds() const override { return exposed_seconds_; }

 private:
  TreeSum sum_;
  std::vector<bool> trainable_;
  double exposed_seconds_ = 0;
};

}  // namespace lockstep::engine
