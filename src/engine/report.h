// The output of a training: the metric stream of each rank, the progress line and messages of the main rank, pictures.
// No call here waits for other ranks, and only Samples and Finish access a disk on the training thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "data/loader.h"
#include "engine/config.h"
#include "engine/pictures.h"
#include "engine/recipe.h"
#include "engine/stage_clock.h"
#include "engine/validation.h"
#include "track/metrics.h"
#include "track/progress_line.h"
#include "track/wandb_live.h"

namespace lockstep::engine {

// What torch's allocator handed out and took from the device, at most since the start; nothing for a CPU.
struct DevicePeak {
  double used = 0, reserved = 0;  // bytes
};
std::optional<DevicePeak> DevicePeakBytes(at::Device device);

struct StepFacts {
  uint64_t step = 0;  // steps done, this one included
  double loss = 0;    // over all ranks
  std::vector<std::pair<std::string, double>> parts;
  double lr = 0, gradient_norm = 0;
  std::optional<double> loss_scale;
  double seconds = 0, data_seconds = 0, comm_seconds = 0, save_seconds = 0;
  uint64_t samples = 0;      // of all ranks
  uint64_t bad_samples = 0;  // unreadable ones so far, each counted once, of all ranks
  bool skipped = false;
  std::optional<bool> graph_replayed;                // on a GPU: it was a replayed graph
  uint64_t fallbacks = 0;                            // steps so far that should have been and were not
  StageTimes stages;                                 // of this rank
  comm::Traffic traffic;                             // of this rank, since the start
  data::LoaderStats loader;                          // of this rank, since the start
  std::vector<std::pair<std::string, double>> more;  // Recipe::Metrics
  std::vector<std::pair<double, double>> sets;       // of a mixture: share of all draws so far, epochs of the set
};

class Report {
 public:
  struct Options {
    std::string run_dir;       // empty: nothing is written
    std::string metrics_path;  // of this rank
    int rank = 0, attempt = 0;
    uint64_t steps = 0, first_step = 0;
    bool goes_on = false;  // after an earlier phase
    at::Device device = at::kCPU;
    TrackConfig track;
    std::string recipe;
    std::string score = "loss";  // of a validation, by which the best checkpoint is chosen
    bool more_is_better = false;
    std::pair<std::string, double> per_sample;  // Recipe::PerSample
  };
  static Result<std::unique_ptr<Report>> Start(const Options& options);
  ~Report();

  void Step(const StepFacts& facts);
  // Means over all ranks, under "val/"; the sheet as pictures/reconstruction-<step>.png. Main rank.
  void Validation(uint64_t step, ValidationResult result);
  // What the ranks could not read in a step, as JSON lists: an event each, unless it is known. Main rank.
  void BadSamples(uint64_t step, const std::vector<std::string>& of_ranks, const std::set<uint64_t>& known);
  // A line on the main rank's console.
  void Say(const std::string& line);
  void Hyperparameters(const std::string& effective_config);
  // Which samples a step used on this rank (track.samples).
  Status Samples(uint64_t step, const std::vector<data::SampleId>& ids);
  void Histograms(uint64_t step, std::vector<std::pair<std::string, track::HistogramData>> histograms);
  // Waits for the pictures, loss.png among them; returns its path or "".
  Result<std::string> Finish(const track::StreamEnd& end);
  // With W&B live: waits for the rest of the upload, not for long where `hurry` says so. After everything that other
  // ranks wait for.
  void AwaitUpload(const std::function<bool()>& hurry);

 private:
  void SetStages(uint64_t step, const StageTimes& stages);
  void SetLoader(uint64_t step, const StepFacts& facts);
  explicit Report(const Options& options);
  track::WandbOptions Wandb(const Environment& env) const;
  void StartUpload(const Environment& env);
  void Set(const char* name, uint64_t step, double value);
  void SetMissing(uint64_t step);

  Options options_;
  std::unique_ptr<track::Metrics> metrics_;
  std::unique_ptr<track::ProgressLine> progress_;
  std::map<std::string, track::MetricId> ids_;
  comm::Traffic last_traffic_;
  data::LoaderStats last_loader_;
  uint64_t skipped_ = 0;
  uint64_t last_step_ = 0;
  std::optional<track::WandbLive> upload_;
  std::unique_ptr<Pictures> pictures_;  // main rank, with a run directory
};

}  // namespace lockstep::engine
