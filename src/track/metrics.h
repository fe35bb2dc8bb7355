// The metric stream of one rank: scalars go from the training threads through one lock-free ring to one writer thread,
// which feeds the sinks (metrics/rank-<r>.jsonl, TensorBoard, CSV, W&B). Each rank owns its own; ranks do not call it
// together. Values reduced over ranks go under plain names on rank 0, values of one rank under "rank/<name>".
//
//   Result<std::unique_ptr<Metrics>> metrics = Metrics::Start({.jsonl_path = env, .rank = 0});
//   MetricId loss = (*metrics)->Register("loss");
//   (*metrics)->Set(loss, step, 0.73);
//   (*metrics)->EndStep(step);
//
// Set and EndStep: any thread, no lock, no system call, no allocation. Everything else: any thread, off the hot path.
// A full or failing disk never stops training: it is said once, and Flush returns it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "track/wandb_sink.h"

namespace lockstep::track {

struct MetricsOptions {
  std::string jsonl_path;       // LOCKSTEP_METRICS; empty: no such file
  std::string tensorboard_dir;  // rank 0 only, as the next two; empty: none
  std::string csv_path;         // empty: none
  WandbOptions wandb;
  int rank = 0;
  int attempt = 0;                        // LOCKSTEP_ATTEMPT
  uint64_t first_step = 0;                // steps done before this process began
  size_t ring_capacity = 1u << 15;        // scalars between two looks of the writer; rounded up to a power of two
  std::chrono::milliseconds flush{1000};  // what is older than this survives kill -9
};

// Which scalar; from Metrics::Register.
struct MetricId {
  uint32_t index = UINT32_MAX;
};

struct HParamList {
  std::string json;
};
using HParamValue = std::variant<double, std::string, bool, HParamList>;
using HParamMap = std::map<std::string, HParamValue>;

// How many values lie between two edges: counts.size() + 1 == edges.size(), or both are empty.
struct HistogramData {
  std::vector<double> edges, counts;
};

// How a training ended.
struct StreamEnd {
  int exit_code = 0;
  bool preempted = false;  // stopped, to be continued
};

class Metrics {
 public:
  // Opens the files (folders are made) and starts the writer. With no path at all it is a working stream to nowhere.
  static Result<std::unique_ptr<Metrics>> Start(MetricsOptions options);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();  // writes everything

  // The id of a name; the same name gives the same id. At any time, before its first Set.
  MetricId Register(std::string_view name);

  // One scalar of one step. A full ring drops it and counts the drop.
  void Set(MetricId id, uint64_t step, double value);
  // One metric line with every scalar set for this step since the last EndStep. Scalars of earlier steps that came late
  // (a background validation) follow in lines of their own.
  void EndStep(uint64_t step);
  // Training goes back to this step (a rollback inside one process): TensorBoard forgets what was written from there
  // on. A restarted process needs no call.
  void Rewind(uint64_t step);

  // For TensorBoard and W&B; metric lines and CSV carry scalars only.
  void Text(std::string tag, uint64_t step, std::string markdown);
  void Image(std::string tag, uint64_t step, std::string png, int width, int height);
  // An animated GIF (gif.h).
  void Video(std::string tag, uint64_t step, std::string gif, int width, int height);
  void Histogram(std::string tag, uint64_t step, HistogramData data);
  void HParams(HParamMap values);

  // Flush, and the training is over: nothing follows. Without it the run counts as failed where a tracker knows that.
  Status Finish(const StreamEnd& end);

  // Returns when everything given so far, ended or not, has been handed to the system; the first error since the last
  // Flush.
  Status Flush();

  // Scalars and steps lost to a full ring. The metric "rank/metrics_dropped" says the same as soon as it is not 0.
  uint64_t dropped() const;

 private:
  class Impl;
  explicit Metrics(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::track
