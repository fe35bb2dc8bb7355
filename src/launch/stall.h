// Whether a job still moves: fed with what every agent sees of its ranks, asked once a second. No progress of any rank
// for longer than the limit is a stall; writing (a checkpoint) is not, and a job that has not begun, that evaluates or
// still prints gets three times as long. Pure (time is given); owned by the coordinator.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/fields.h"
#include "launch/options.h"

namespace lockstep::launch {

// One rank as its agent sees it. Ages count back from the moment of sending; negative: never.
struct RankPulse {
  int rank = -1;
  std::optional<uint64_t> step;
  Millis progress{-1};      // since its last progress (a metric line, a progress line that advanced)
  Millis output{-1};        // since it last printed anything
  bool writing = false;     // it writes files now, more than its log
  bool evaluating = false;  // its last line speaks of an evaluation, a save, a load

  LOCKSTEP_FIELDS(visit("rank", self.rank), visit("step", self.step), visit("progress_ms", self.progress),
                  visit("output_ms", self.output), visit("writing", self.writing), visit("evaluating", self.evaluating))
};

class StallJudge {
 public:
  explicit StallJudge(StallLimit limit) : limit_(limit) {}

  void Begin(TimePoint now);  // of an attempt
  void Feed(const std::vector<RankPulse>& ranks, TimePoint now);
  // What ranks print or write between these times they were asked for (a dump of their collectives): no sign of life.
  void Asked(TimePoint from, TimePoint until);

  struct Verdict {
    bool stalled = false;
    Millis quiet{0};  // how long nothing has moved
    Millis limit{0};
    std::string why;  // "no progress for 5m (limit 5m)"
  };
  Verdict Check(TimePoint now) const;

  // Last step seen, by rank.
  const std::map<int, uint64_t>& steps() const { return steps_; }
  bool progressed() const { return last_progress_.has_value(); }
  // The longest usual time between steps (99th percentile), in seconds; nothing before two steps.
  std::optional<double> usual() const;

  // How often the agents should tell.
  static Millis PulseInterval(const StallLimit& limit);

 private:
  Millis Base() const;

  StallLimit limit_;
  TimePoint begin_{};
  std::optional<TimePoint> last_progress_;
  TimePoint last_output_{}, last_write_{};
  TimePoint asked_from_{}, asked_until_{};
  bool evaluating_ = false;
  std::deque<double> intervals_;  // seconds between progress, the latest
  std::map<int, uint64_t> steps_;
};

}  // namespace lockstep::launch
