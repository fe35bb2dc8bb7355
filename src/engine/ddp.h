// Data parallelism: every rank holds the whole model; gradients are summed over ranks, bucket by bucket, while backward
// still computes the next ones. A bucket is a range of the flat gradient buffer, so nothing is packed or copied; in
// shared memory it is reduced where autograd wrote it. Buckets start in the order of the buffer on every rank,
// whatever order gradients come in.
//
// Hooks sit on the parameters themselves, so it does not matter through which method or submodule the loss was
// computed.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/flat.h"
#include "engine/ranks.h"
#include "engine/strategy.h"

namespace lockstep::engine {

struct DdpConfig {
  uint64_t bucket_bytes = 25u << 20;
  uint64_t first_bucket_bytes = 1u << 20;  // small, so that the first exchange starts early
  // Some parameters may get no gradient in a step; which, is agreed by all ranks (one small all-reduce more).
  bool find_unused = false;
  // Every step uses the same parameters the same number of times: learnt in the first step. Needed where one
  // parameter's gradient comes in several parts (weights shared between recomputed segments).
  bool static_graph = false;
  // For tests only: leaves every rank with its own gradients.
  bool reduce = true;
  // For tests only: a single rank exchanges its gradients too, with itself.
  bool alone = false;
};

class Ddp : public ParallelStrategy {
 public:
  Ddp(const DdpConfig& config, FlatParameters* flat, Ranks* ranks);
  ~Ddp() override;

  void BeginStep() override;
  void BeginBackward(bool last) override;
  Status EndBackward(Backward outcome) override;
  void Replayed() override { touched_ = trainable_; }
  Status FinishGradients() override;
  Status FinishParameters() override { return Status::Ok(); }
  void TrainableChanged() override;
  const std::vector<bool>& used() const override { return used_; }
  std::vector<FlatRange> OwnedRanges() const override { return {{0, flat_->numel()}}; }
  double exposed_seconds() const override { return exposed_seconds_; }

  const std::vector<FlatRange>& buckets() const { return ranges_; }

 private:
  class Hook;
  void OnGradient(size_t parameter);  // any thread of autograd
  void Launch(size_t bucket);         // with the lock held
  void LaunchReady();
  Status CheckAllCame() const;

  DdpConfig config_;
  FlatParameters* flat_;
  Ranks* ranks_;
  std::vector<FlatRange> ranges_;
  std::vector<size_t> bucket_of_;  // per parameter
  // Tensors hold their accumulators only weakly; without this strong reference the hooks would vanish. The type of the
  // pointer differs between versions of LibTorch.
  using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  std::vector<std::pair<Accumulator, uintptr_t>> hooks_;

  std::mutex mutex_;
  bool sending_ = false;       // this backward's gradients are final
  std::vector<int> arrived_;   // gradients per parameter in this backward
  std::vector<int> expected_;  // with static_graph: learnt; 0: unused
  bool learnt_ = false;
  std::vector<int> missing_;  // per bucket: parameters still to come
  size_t next_bucket_ = 0;    // the first one not yet launched
  std::string repeated_;      // a parameter whose gradient came again after its bucket had left
  std::vector<bool> trainable_, touched_, used_;
  std::vector<comm::TensorWork> works_;
  double exposed_seconds_ = 0;
};

// Ranges of the flat buffer in order, each closed once it holds at least the cap: the first bucket has a cap of its
// own.
std::vector<FlatRange> PlanBuckets(const FlatParameters& flat, uint64_t first_bytes, uint64_t bytes,
                                   std::vector<size_t>* bucket_of);

}  // namespace lockstep::engine
