// ZeRO: every rank keeps the optimizer's state of its share of each bucket, and updates only that. Gradients of a
// bucket are reduced and scattered while backward still computes the next ones; updated parameters are gathered again.
//
// - Stage 1: gradients and parameters are whole on every rank.
// - Stage 2: a gradient exists until its bucket has left: buckets are filled in a few pieces of memory that are used
//   again. Every pass of a step is exchanged, unless `exchange_once` asks for a whole buffer instead.
// - Stage 3: so do parameters. Those of a unit of the model are gathered before its forward and its backward, ahead of
//   time where the order of the pass before holds, and released afterwards (gathered.h, unit_order.h). In an
//   evaluation ranks ask for units as they come to them.
//
// All stages add in the same order as DDP does, so that they have its bits (stages 2 and 3 with several passes in a
// step: with `exchange_once`). A rank that cannot run a pass makes the collectives that it would have made.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/ddp.h"
#include "engine/gathered.h"
#include "engine/unit_order.h"

namespace lockstep::engine {

class Zero : public Ddp {
 public:
  Zero(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks);
  ~Zero() override;

  void BeginStep() override;
  void BeginBackward(bool last) override;
  Status EndBackward(Backward outcome) override;
  Status FinishGradients() override;
  Status SitOut() override;
  std::string WhyNotCaptured() const override;
  Status EndCapture(bool last) override;
  Status Replayed(bool last) override;

  Status PublishParameters() override;
  Status Evaluate(const std::function<void()>& work) override;
  bool wraps_units() const override { return sharded(); }
  void BeforeUnit(size_t unit, Phase phase) override;
  void AfterUnit(size_t unit, Phase phase) override;
  std::string ExplainFailure(size_t unit, const std::function<void()>& again) override;
  Status AdoptParameters() override;
  Status CombineNorm(SquareSum* squares) override;
  Status CombineOverRanks(const at::Tensor& numbers, comm::Op op) override;
  bool captures_norm() const override { return ranks_->tensors().recordable(); }

  Held held() const override;
  // Stage 3: the memory of whole units.
  UnitMemory& unit_memory() { return *memory_; }

 private:
  struct InFlight {
    size_t bucket = 0;
    size_t piece = 0;   // of the host's memory
    at::Tensor memory;  // the bucket's gradients
    at::Tensor sum;     // of all ranks, this rank's share; undefined: it is in the own gradients already
    comm::TensorWork work;
  };

  void Launch(size_t bucket) override;
  void Take(size_t parameter, int before, bool touched) override;
  bool sharded() const { return IsSharded(flat_->stage(), Buffer::kParameters); }
  bool exchanges_every_pass() const { return !flat_->options().whole_gradients; }
  at::Tensor Filling(size_t bucket);
  void ZeroWhatDidNotCome(size_t bucket, const at::Tensor& memory);
  void Retire();
  at::Tensor OwnGradients(size_t bucket) const;

  // The buffers of a unit: its trained parameters, then its frozen ones.
  void Start(size_t unit);
  Status Wait(size_t unit);
  void Need(size_t unit);
  void LetGo(size_t unit);
  void StartAhead();
  bool StartNext(size_t unit);
  void RunRest();
  void ReleaseAll();
  size_t AgreeOnUnit(size_t needed);
  void Bring(size_t unit);
  FlatRange BucketsOf(int group) const;  // begin and end of indices

  // Stage 2.
  bool first_pass_ = true, last_pass_ = false;
  std::vector<at::Tensor> filling_;  // per bucket; undefined: nothing came yet
  std::vector<size_t> piece_of_;     // per bucket, on the host
  std::vector<at::Tensor> pieces_;   // the host's memory, shared with the other ranks
  std::vector<size_t> free_pieces_;
  std::deque<InFlight> in_flight_;

  // Stage 3.
  std::unique_ptr<UnitMemory> memory_;
  std::unique_ptr<ShardUpload> upload_;                  // null: shards are on the device
  std::vector<std::unique_ptr<GatheredBuffer>> units_;   // trained parameters
  std::vector<std::unique_ptr<GatheredBuffer>> frozen_;  // by group of frozen parameters
  std::vector<std::vector<size_t>> frozen_of_;           // per unit: its groups
  std::vector<int64_t> sizes_;                           // per unit: elements of all its buffers
  std::unique_ptr<GatheredBuffer> always_;
  std::unique_ptr<UnitOrder> order_;
  std::vector<bool> started_, placed_;
  int64_t live_ = 0;
  bool in_pass_ = false;

  // An evaluation at stage 3 (zero_evaluation.cc).
  bool evaluates_ = false;
  std::optional<size_t> brought_;                   // the unit that ranks compute with
  std::vector<std::optional<size_t>> followed_by_;  // per unit: what was brought after it
};

}  // namespace lockstep::engine
