// The pictures of a run: a sheet of samples after each validation, and the loss curve. They are drawn and written on a
// thread of their own (track/painter.h), so that the training thread only passes the data on. Without Cairo, and
// whenever a picture fails, training continues; a warning is printed and the failure counted. Owned by the main rank's
// Report, used by its training thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "track/metrics.h"
#include "track/painter.h"
#include "track/run_curve.h"
#include "track/sheet.h"

namespace lockstep::engine {

// "night-1", of a dry run "night-1/smoke".
std::string RunName(const std::string& run_dir);

struct PicturesOptions {
  std::string run_dir;
  std::string metrics_path;  // of rank 0
  std::string recipe;
  std::string score = "loss";  // what the best checkpoint is chosen by
  bool more_is_better = false;
  uint64_t steps = 0;
};

class Pictures {
 public:
  // Says what is missing where Cairo cannot be loaded. `metrics` outlives this object.
  Pictures(PicturesOptions options, track::Metrics* metrics);

  // Writes pictures/<name>-<step>.png, and .gif where a row has a clip, and shows them in TensorBoard and W&B. `scores`
  // are means over `samples` samples.
  void Show(const std::string& name, uint64_t step, const std::vector<std::pair<std::string, double>>& scores,
            uint64_t samples, track::Sheet sheet);
  // A sheet that could not be made.
  void Fail(const std::string& name, const Status& why);
  // Draws loss.png from the metric lines of all attempts, soon.
  void DrawCurve();
  // Waits until what was asked for is drawn.
  void Wait() { painter_.Finish(); }

  // Of the loss curve; empty while there is none.
  std::string curve_path() const { return curve_drawn_ ? options_.run_dir + "/loss.png" : ""; }
  uint64_t missing() const { return painter_.missing(); }

 private:
  Status WriteSheet(const std::string& name, uint64_t step, const track::Sheet& sheet);
  Status WriteClip(const std::string& name, uint64_t step, const std::vector<track::Picture>& frames);
  Status WriteCurve();

  PicturesOptions options_;
  track::Metrics* metrics_;
  const track::Cairo* cairo_ = nullptr;  // null: no pictures
  std::unique_ptr<track::RunCurve> curve_;
  std::atomic<bool> curve_waits_{false}, curve_drawn_{false};
  track::Painter painter_;  // last: its thread uses the others
};

}  // namespace lockstep::engine
