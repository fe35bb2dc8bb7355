// The curve of a run, from the metric lines of its main rank: training and validation loss, the score that decides
// which checkpoint is best, the learning rate, and where attempts began. Reads only what was appended since the last
// call. One thread at a time.
//
//   RunCurve run({.metrics_path = "runs/night-1/metrics/rank-0.jsonl", .title = "night-1", .score = "psnr"});
//   Result<Picture> picture = DrawCurve(*cairo, run.Read());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "record/metrics.h"
#include "track/curve.h"

namespace lockstep::track {

struct RunCurveOptions {
  std::string metrics_path;
  std::string title, recipe;
  std::string score = "loss";  // of a validation; "loss" has no panel of its own
  bool more_is_better = false;
  uint64_t steps = 0;  // of the whole run; 0: unknown
};

class RunCurve {
 public:
  explicit RunCurve(RunCurveOptions options);

  // Everything that is known by now. Where an attempt began again from an earlier step, what the attempts before it had
  // measured beyond is left out, as it is in the weights.
  Curve Read();
  // Points of the training loss in the last Read.
  size_t size() const { return Of("loss").size(); }

 private:
  void Take(const record::MetricLine& line);
  const Points& Of(const std::string& name) const;
  CurvePanel ScorePanel() const;

  RunCurveOptions options_;
  record::MetricFollower lines_;
  std::map<std::string, Points> series_;  // by metric; ascending steps
  std::optional<int> attempt_;
  std::vector<CurveMark> marks_;
  uint64_t last_step_ = 0;
};

}  // namespace lockstep::track
