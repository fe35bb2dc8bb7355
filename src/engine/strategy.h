// How ranks share one model: which part of it each rank updates, how gradients of all ranks become one, and when whole
// parameters exist. DDP (ddp.h) keeps everything on every rank, ZeRO (zero.h) less. The learner drives it, on the
// training thread, on all ranks alike:
//
//   strategy.BeginStep();
//   for each micro-batch:  strategy.BeginBackward(last); loss.backward(); strategy.EndBackward();
//   strategy.FinishGradients();          // the own gradients are now the sum over all ranks and micro-batches
//   the optimizer's step on the own part;
//   strategy.PublishParameters();        // every rank computes with what the others have updated
//
// A rank whose share of a step is empty, or whose backward failed, still makes every call: it adds zeros. So no rank
// can be alone in a collective.
//
// A backward can be captured in a CUDA graph: BeginCapture and EndCapture, inside the capture, stand for BeginBackward
// and EndBackward there, and Replayed for both of them after a replay. The strategy decides which part of the
// exchange the graph contains.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/flat.h"
#include "engine/ranks.h"
#include "engine/square_sum.h"

namespace lockstep::engine {

class ParallelStrategy {
 public:
  virtual ~ParallelStrategy() = default;

  virtual void BeginStep() = 0;
  // `last`: the gradients of this backward complete the step, they may be sent as they come.
  virtual void BeginBackward(bool last) = 0;
  // After a backward, or instead of one. Errors name parameters that got no gradient where all must.
  enum class Backward { kDone, kEmpty, kFailed };
  virtual Status EndBackward(Backward outcome) = 0;
  virtual Status FinishGradients() = 0;
  // Instead of a pass that other ranks have and this one does not.
  virtual Status SitOut() { return Status::Ok(); }

  // Whether the exchange is a part of the last backward's graph, which is then captured apart from the others.
  virtual bool captures_exchange() const = 0;
  // Why a pass cannot be captured at all; empty: it can.
  virtual std::string WhyNotCaptured() const { return ""; }
  virtual void BeginCapture(bool last) = 0;
  virtual Status EndCapture(bool last) = 0;
  // After a replay: every trainable parameter has its gradient; what was not captured is done now.
  virtual Status Replayed(bool last) = 0;

  // After the own values changed (an update, a swap with the EMA, a restored checkpoint).
  virtual Status PublishParameters() = 0;
  // Runs `work`: what this rank has to do in an evaluation (a validation), forward passes of which the other ranks know
  // neither number nor order. Returns when all ranks are done; `work` must not throw. Collective.
  virtual Status Evaluate(const std::function<void()>& work) = 0;
  // Whether whole parameters exist only around the units of the model (units.h). Then each unit's forward, and its part
  // of backward, runs between these two, on the training thread or autograd's. A recomputed unit is entered once for
  // backward. Where a unit's input needs no gradient its AfterUnit of backward does not come; EndBackward stands for
  // it.
  enum class Phase { kForward, kBackward };
  virtual bool wraps_units() const = 0;
  virtual void BeforeUnit(size_t unit, Phase phase) = 0;
  virtual void AfterUnit(size_t unit, Phase phase) = 0;
  // A unit's forward failed: what the strategy knows of it, or "". `again` runs it once more.
  virtual std::string ExplainFailure(size_t /*unit*/, const std::function<void()>& /*again*/) { return ""; }
  // Every rank begins with the parameters of rank 0. Collective.
  virtual Status AdoptParameters() = 0;

  // What this rank has of the gradient's norm becomes that of all parts, in place: on the host, or as numbers on the
  // device, queued there. Nothing to do where every rank has all gradients.
  virtual Status CombineNorm(SquareSum* squares) = 0;
  virtual Status CombineOverRanks(const at::Tensor& numbers, comm::Op op) = 0;
  // Whether the latter can be captured in a CUDA graph.
  virtual bool captures_norm() const { return true; }

  // The set of parameters that require gradients has changed (a freeze ended).
  virtual void TrainableChanged() = 0;
  // Which parameters take part in this step's update: trainable, and used by some rank.
  virtual const std::vector<bool>& used() const = 0;
  // Bytes that the strategy holds beside the flat buffers: gradients on their way, units that are whole (on a device
  // the most there were).
  struct Held {
    size_t buckets = 0, gathered = 0;
  };
  virtual Held held() const { return {}; }
  // Of the last step: time the training thread stood waiting for gradients of others.
  virtual double exposed_seconds() const = 0;
};

// What is sharded between ranks, and how.
struct ZeroConfig {
  int stage = 0;  // 0: nothing, 1: the optimizer's state, 2: gradients too, 3: parameters too
  // Stages 2 and 3: gradients of all passes of a step are added up on each rank and exchanged once, as at stages 0 and
  // 1: the same order of additions and less traffic, for a whole gradient buffer on every rank.
  bool exchange_once = false;
  // Stage 3, in elements. Units are gathered ahead up to `prefetch`; a unit stays where it is used again within
  // `reuse_distance`, as long as at most `live` elements are whole; smaller parameters than `persistent` always are.
  int64_t prefetch = 50'000'000;
  int64_t reuse_distance = 0;
  int64_t live = 1'000'000'000;
  int64_t persistent = 100'000;
};

// What strategies that keep whole parameters and the whole optimizer on every rank have in common.
class Replicated : public ParallelStrategy {
 public:
  Replicated(FlatParameters* flat, Ranks* ranks) : flat_(flat), ranks_(ranks) {}
  Status PublishParameters() override;
  Status Evaluate(const std::function<void()>& work) override {
    work();
    return Status::Ok();
  }
  bool wraps_units() const override { return false; }
  void BeforeUnit(size_t /*unit*/, Phase /*phase*/) override {}
  void AfterUnit(size_t /*unit*/, Phase /*phase*/) override {}
  Status AdoptParameters() override;
  Status CombineNorm(SquareSum* /*squares*/) override { return Status::Ok(); }
  Status CombineOverRanks(const at::Tensor& /*numbers*/, comm::Op /*op*/) override { return Status::Ok(); }

 protected:
  FlatParameters* flat_;
  Ranks* ranks_;
};

// Everything about strategies that a configuration says, and the one place where they are made from it.
struct StrategyConfig {
  // One strategy has the same bits on any number of ranks: every backward is one of `shards` canonical shards.
  bool reproducible = false;
  uint64_t shards = 8;
  uint64_t bucket_bytes = 25u << 20;
  uint64_t first_bucket_bytes = 1u << 20;
  // Some parameters may get no gradient in a step; which, is agreed by all ranks (one small all-reduce more).
  bool find_unused = false;
  // Every step uses the same parameters the same number of times: learnt in the first step. Needed where one
  // parameter's gradient comes in several parts (weights shared between recomputed segments).
  bool static_graph = false;
  ZeroConfig zero;
  at::ScalarType parameters = at::kFloat;  // what the model computes with
  std::vector<Unit> units;                 // of the model
  bool host_parameters = false;            // stage 3: a rank's shards lie in host memory, with the master
  // The learner resets gradients itself, before the first backward of a step: until then they are still being read.
  bool late_reset = false;
  // For tests only: leaves every rank with its own gradients; a single rank exchanges its gradients too, with itself.
  bool reduce = true, alone = false;
};

// How the memory of a model must be laid out for the strategy.
FlatParameters::Options StorageFor(const StrategyConfig& config, const Ranks& ranks);
std::unique_ptr<ParallelStrategy> MakeStrategy(const StrategyConfig& config, FlatParameters* flat, Ranks* ranks);

}  // namespace lockstep::engine
