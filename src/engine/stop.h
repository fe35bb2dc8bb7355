// Why a run may end before its last step, as seen by one rank: a signal (SIGTERM, SIGUSR1, SIGINT: save and stop) or
// the time limit. This class only reports it: the trainer includes it in the all-reduce at the end of each step. The
// handlers are process-wide; one StopRequests lives at a time, made before other threads start.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace lockstep::engine {

class StopRequests {
 public:
  // `deadline`: where the time began to count earlier.
  explicit StopRequests(std::optional<std::chrono::milliseconds> max_time,
                        std::optional<TimePoint> deadline = std::nullopt);
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  // Remembers signals from now until the end of the process, whether or not a StopRequests lives.
  static void Listen();

  int signal() const;  // the one that came first, or 0
  bool time_up() const { return deadline_ && Now() >= *deadline_; }

 private:
  std::optional<TimePoint> deadline_;
};

}  // namespace lockstep::engine
