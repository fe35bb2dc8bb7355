// Seconds per step from the times at which steps were seen: a mean over the latest of them. A value; one thread.
//
//   Pace pace;
//   pace.Add(10, t0);
//   pace.Add(30, t0 + 2);
//   pace.seconds_per_step();   // 0.1
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace lockstep::watch {

class Pace {
 public:
  // `t` in seconds, from one clock. Steps or times that go back begin anew: a restart, another clock. Of several steps
  // at one time only the first counts: stamps are cut to seconds, and lines of one poll share the file's time.
  void Add(uint64_t step, double t);

  // Nothing before two steps were seen at two times.
  std::optional<double> seconds_per_step() const;

 private:
  std::deque<std::pair<uint64_t, double>> seen_;
};

}  // namespace lockstep::watch
