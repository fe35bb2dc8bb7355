// The progress of a run as one line: live (redrawn in place, cut to the terminal's width, removed at the end) on a
// terminal, else a plain line now and then, always for the first and the last step, in words the launcher counts as
// progress (record/progress.h). Owned by the main rank, used by one thread; nothing is shared with other ranks.
//
//   ProgressLine progress({.total = 1000});
//   progress.Update({.step = 1, .loss = 0.7, .lr = 1e-4});
//   progress.Finish();
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"

namespace lockstep::track {

struct ProgressValues {
  uint64_t step = 0;  // steps done
  std::optional<double> loss;
  std::optional<double> lr;
  std::optional<double> samples_per_second;
  std::optional<double> data_wait;         // share of the step spent waiting for data, 0..1
  std::optional<double> seconds_per_step;  // default: measured between calls, smoothed
};

struct ProgressLineOptions {
  std::string unit = "step";  // what is counted; anything else than steps shows its rate as "12.5 frames/s"
  uint64_t total = 0;         // steps of the whole run; 0: unknown
  uint64_t first_step = 0;    // steps done before this process began (a resumed run)
  int fd = 1;
  std::optional<bool> terminal;           // default: whether fd is one
  std::chrono::milliseconds every{5000};  // between plain lines
  std::chrono::milliseconds redraw{100};  // between redraws of the live line
};

class ProgressLine {
 public:
  explicit ProgressLine(ProgressLineOptions options);
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine();  // Finish()

  // After every step. Cheap when there is nothing to show yet.
  void Update(const ProgressValues& values, TimePoint now = Now());
  // A whole line of other text (a validation result) without disturbing the live one.
  void Say(const std::string& line);
  // The last step as a plain line; the live line is gone afterwards. Again: nothing.
  void Finish();

  double seconds_per_step() const { return seconds_per_step_; }

 private:
  void Plain();
  void Draw();
  void Clear();
  void Write(const std::string& text) const;

  ProgressLineOptions options_;
  bool terminal_ = false;
  bool drawn_ = false;  // the live line is on the screen
  bool finished_ = false;
  std::optional<ProgressValues> last_;
  std::optional<uint64_t> printed_step_;
  std::optional<TimePoint> last_update_, last_shown_;
  double seconds_per_step_ = 0;
  double smoothed_sum_ = 0, smoothing_weight_ = 0;
};

// "step 120/1000 | loss 0.0123 | lr 1.00e-04 | 0.520 s/it | 61.5 samples/s | data wait 3% | ETA 7m38s". Parts that are
// unknown are absent; with columns > 0 whole parts are left out from the end until it fits.
std::string ProgressText(const ProgressValues& values, uint64_t total, double seconds_per_step, size_t columns = 0,
                         const std::string& unit = "step");

}  // namespace lockstep::track
