// The training loop. All ranks run the same steps and decide everything together: each step ends with one small sum
// over ranks of what happened where (a signal, an unreadable sample, out of memory, a failure), and what follows is a
// function of that sum, the same on every rank. One Trainer per process, used by its main thread; Setup and Run are
// collective.
//
//   Trainer trainer(config, &recipe, &ranks, device, options);
//   LOCKSTEP_RETURN_IF_ERROR(trainer.Setup());
//   Result<RunEnd> end = trainer.Run();
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/average.h"
#include "engine/config.h"
#include "engine/feed.h"
#include "engine/flat.h"
#include "engine/optimizer.h"
#include "engine/ranks.h"
#include "engine/recipe.h"
#include "engine/report.h"
#include "engine/saving.h"
#include "engine/scaler.h"
#include "engine/state.h"
#include "engine/stop.h"
#include "engine/strategy.h"

namespace lockstep::engine {

struct TrainerOptions {
  std::string run_dir;          // empty: nothing is written
  std::string metrics_path;     // of this rank
  std::string resume = "auto";  // auto, none, or the path of a checkpoint
  int attempt = 0;
  bool restarted = false;           // by the launcher: `none` then means "as before"
  std::optional<uint64_t> stop_at;  // ends as if asked to, after this step
  std::string effective_config;     // for the record
  bool quiet = false;
};

enum class RunEnd {
  kFinished,   // all steps done
  kConverged,  // early stop
  kStopped,    // by request, state saved: resume me
};

class Trainer {
 public:
  Trainer(const Config& config, Recipe* recipe, Ranks* ranks, at::Device device, TrainerOptions options);
  ~Trainer();

  Status Setup();
  Result<RunEnd> Run();

  const Position& position() const { return state_.position; }
  const FlatParameters& flat() const { return *flat_; }
  const BatchPlan& batch_plan() const { return plan_; }
  const std::optional<double>& last_loss() const { return last_loss_; }

 private:
  // What the ranks tell each other at the end of a step; summed over ranks.
  struct Totals;

  Status CheckScores() const;
  Status CheckData(const std::string& checkpoint);
  Status OpenData();
  Status BuildModel();
  Status FindCheckpoint(std::string* path);
  void StartFeed();
  void Banner();

  Result<RunEnd> Loop();
  Status Step();
  Status Passes(Totals* totals, Status* failure);
  void DescribeFirstBatch(const TensorBatch& batch);
  ParallelStrategy::Backward OnePass(const FeedItem& item, Totals* totals, Status* failure);
  Status Judge(const Totals& totals, const Status& failure);
  Status Update(const Totals& totals, StepFacts* facts);
  std::string FirstBadParameter() const;
  Status Validate();
  Status BroadcastBuffers();

  Config config_;
  Recipe* recipe_;
  Ranks* ranks_;
  at::Device device_;
  TrainerOptions options_;
  StopRequests stop_;
  BatchPlan plan_;
  uint64_t passes_ = 1;  // of this rank in a step

  Sources sources_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<Feed> feed_;
  std::optional<FlatParameters> flat_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Average> average_;
  std::unique_ptr<LossScaler> scaler_;
  std::unique_ptr<ParallelStrategy> strategy_;
  std::unique_ptr<Report> report_;
  Saving saving_;
  TrainingState state_;
  std::vector<std::string> part_names_;
  std::vector<data::BadSample> bad_;  // of this rank in this step
  std::vector<data::SampleId> used_;  // likewise
  std::optional<double> last_loss_;
  bool stop_now_ = false, converged_ = false, improved_ = false;
  bool described_first_batch_ = false;
};

// The device of a rank: "auto" takes the GPU of its local rank where there are any. More ranks than GPUs is an error
// unless the backend is host, which lets them share.
Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank, int local_size, comm::Backend backend);

// What must be set before the first tensor: threads, deterministic kernels.
void PrepareTorch(const Config& config);

}  // namespace lockstep::engine
