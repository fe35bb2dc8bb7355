// The training loop. All ranks run the same steps and decide everything together: each step ends with one small sum
// over ranks of what happened where (a signal, an unreadable sample, out of memory, a failure), and what follows is a
// function of that sum, the same on every rank. On a GPU the host never waits for a step: its loss and norm are read
// one or two steps later, and once warm a step is replayed as CUDA graphs. One Trainer per process, used by its
// main thread; Setup and Run are collective.
//
//   Trainer trainer(config, &recipe, &ranks, device, options);
//   LOCKSTEP_RETURN_IF_ERROR(trainer.Setup());
//   Result<RunEnd> end = trainer.Run();
#pragma once

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "data/auto_threads.h"
#include "engine/captured_steps.h"
#include "engine/config.h"
#include "engine/feed.h"
#include "engine/learner.h"
#include "engine/memory_need.h"
#include "engine/phase.h"
#include "engine/ranks.h"
#include "engine/readback.h"
#include "engine/recipe.h"
#include "engine/report.h"
#include "engine/saving.h"
#include "engine/stage_clock.h"
#include "engine/state.h"
#include "engine/stop.h"
#include "engine/strategy.h"

namespace lockstep::engine {

// Where a run would start: its checkpoint and the steps done there; no path and 0 from the beginning.
struct StartPoint {
  std::string path;
  uint64_t step = 0;
};

struct TrainerOptions {
  std::string run_dir;          // empty: nothing is written
  std::string metrics_path;     // of this rank
  std::string resume = "auto";  // auto, none, or a checkpoint or run as record::FindCheckpoint takes it
  int attempt = 0;
  bool restarted = false;           // by the launcher: `none` then means "as before"
  std::optional<uint64_t> stop_at;  // ends as if asked to, after this step
  std::string effective_config;     // for the record
  bool quiet = false;
  RunPhase phase;
  uint64_t steps_before = 0;          // of this process, in earlier phases
  std::optional<TimePoint> deadline;  // of run.max_time; none: it counts from the making of the trainer
  // For tests: updates as on a GPU, on the CPU too; a single rank exchanges gradients with itself.
  bool queued = false, alone = false;
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

  // Collective: what `options.resume` means in this run directory. Rank 0 looks, the others need not see the folder.
  static Result<StartPoint> FindStart(const TrainerOptions& options, Ranks* ranks);

  const Position& position() const { return state_.position; }
  const FlatParameters& flat() const { return learner_->flat(); }
  uint64_t captured_steps() const { return captured_count_; }
  const BatchPlan& batch_plan() const { return plan_; }
  // The configuration with what `auto` became; after Setup.
  const std::string& effective_config() const { return options_.effective_config; }
  const std::optional<double>& last_loss() const { return last_loss_; }

 private:
  // What the ranks tell each other at the end of a step; summed over ranks.
  struct Totals;
  // A step whose numbers are not yet known to the host.
  struct Pending {
    StepFacts facts;
    double weight = 0, discriminator_weight = 0;
    bool updated = false, ema = false, out_of_memory = false;
  };

  Status CheckScores() const;
  Status CheckData(const std::string& checkpoint);
  std::string DataIdentity() const;
  Result<data::Sampler> MakeSampler() const;
  Status OpenData();
  Status BuildModel();
  Status MoveModel();
  Status CheckUnits() const;
  Status CheckMemory() const;
  // trainer_plan.cc
  struct Plan;
  void MakePlan();
  void SayPlan();
  static uint64_t AvailableHostMemory();
  // Bytes that this rank holds, by component; asked for once, after the first step.
  const std::vector<std::pair<std::string, double>>& OwnedMetrics();
  Status OutOfMemory(const std::string& what);
  TrainConfig InForce() const;
  void RunUnits();
  Result<std::unique_ptr<Learner>> MakeLearner(const torch::nn::Module& module, bool discriminator);
  Status StartFrom(const std::string& checkpoint);
  Status ChoosePrecision(const std::string& checkpoint);
  Status SetCheckpointsAside(const StartPoint& start) const;
  Status OpenSaving(const StartPoint& start);
  void StartFeed();
  void StartCapturing();
  void Banner();

  Result<RunEnd> Loop();
  Status Step();
  Status TurnProfile();
  Status DrawHistograms(uint64_t step, double weight);
  Status Discriminator(Totals* totals, Status* failure);
  void Passes(Learner& learner, Totals* totals, Status* failure);
  Result<FeedItem> Fetch(uint64_t pass, Totals* totals);
  void DescribeFirstBatch(const TensorBatch& batch);
  double Compute(Learner& learner, const Pass& pass, const TensorBatch& batch);
  void AddWeight(const Learner& learner, const TensorBatch& batch, double loss_weight, Totals* totals);
  ParallelStrategy::Backward OnePass(Learner& learner, const Pass& pass, const FeedItem& item, Totals* totals,
                                     Status* failure);
  Status Update(Learner& learner, double weight, bool ema);
  Status Judge(const Totals& totals, const Status& failure);
  Status LeaveOutBadSamples();
  std::optional<std::vector<double>> OldestNumbers();
  // `sums` over all ranks, `numbers` of this one.
  Status SettleOldest(const std::vector<double>& sums, const std::vector<double>& numbers);
  Status SettleAll();
  Status Save(bool now);
  Status Validate();
  // Which score of a validation decides what is best, and whether more is better.
  std::pair<std::string, bool> BestScore() const;
  Status BroadcastBuffers();

  // CUDA graphs (trainer_graph.cc). Until steps are warm, libraries choose their algorithms and the allocator its
  // sizes.
  static constexpr uint64_t kWarmUpSteps = 3;
  bool warming_up() const { return steps_here_ < kWarmUpSteps; }
  bool Captures(const TensorBatch& batch) const;
  bool ReplayPass(Learner& learner, const Pass& pass, const FeedItem& item, double* weight, Status* exchange);
  bool ReplayUpdate(Learner& learner, bool ema, Status* outcome);
  void NotCaptured(const std::string& why);
  // Steps since schedule, freezing and intervals began to count.
  uint64_t counted(uint64_t step) const { return step - std::min(step, options_.phase.origin); }
  bool offloads_parameters() const { return config_.train.offload.parameters && queued_; }
  bool IsDiscriminator(const Learner& learner) const { return &learner == discriminator_.get(); }

  Config config_;
  Recipe* recipe_;
  Ranks* ranks_;
  at::Device device_;
  TrainerOptions options_;
  StopRequests stop_;
  // Graphs cannot be captured on the default stream, and gradients belong to the stream their hooks were made on.
  std::optional<c10::StreamGuard> stream_;
  BatchPlan plan_;
  std::string precision_why_;  // where it was chosen here
  uint64_t passes_ = 1;        // of this rank in a step
  ModelSize model_size_;
  std::shared_ptr<Plan> planned_;
  std::vector<std::pair<std::string, double>> owned_metrics_;
  bool undrawn_ = false;  // parameters have no memory until each rank draws its part
  bool queued_ = false;   // updates are queued on the device; numbers come later

  Sources sources_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<Feed> feed_;
  std::optional<data::AutoThreads> auto_threads_;  // with data.cores
  std::unique_ptr<Learner> learner_, discriminator_;
  std::unique_ptr<Report> report_;
  std::unique_ptr<Profile> profile_;
  std::optional<StageClock> stages_;
  Saving saving_;
  TrainingState state_;
  std::vector<std::string> part_names_;
  std::vector<data::BadSample> bad_;         // of this rank in this step
  std::set<uint64_t> known_bad_;             // indices of samples that some rank could not read; alike on all ranks
  std::set<uint64_t> named_bad_validation_;  // of this rank
  std::vector<data::SampleId> used_;         // likewise
  std::vector<FeedItem> kept_;               // with a discriminator: the batches of this step
  std::unique_ptr<Readback> readback_;
  std::deque<Pending> pending_;  // as many as the readback holds
  std::optional<double> last_loss_;
  bool stop_now_ = false, converged_ = false, improved_ = false, save_due_ = false;
  bool described_first_batch_ = false;

  std::unique_ptr<CapturedSteps> captured_;  // null: steps run as they are
  Status capturing_;                         // an error where they must be captured
  uint64_t steps_here_ = 0;                  // of this trainer
  uint64_t captured_count_ = 0;              // of them, replayed
  uint64_t fallbacks_ = 0;                   // of them, not replayed although wanted
};

// The device of a rank: "auto" takes the GPU of its local rank where there are any. More ranks than GPUs is an error
// unless the backend is host, which lets them share.
Result<at::Device> ChooseDevice(const std::string& wanted, int local_rank, int local_size, comm::Backend backend);

// What must be set before the first tensor: threads, deterministic kernels. `threads`: of this rank where
// the configuration does not say; 0: as LibTorch chose.
void PrepareTorch(const Config& config, int threads = 0);

}  // namespace lockstep::engine
