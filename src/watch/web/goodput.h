// Where the time of a run went: training that counts, and everything else (definition: docs/report.md). From the events
// and the metric lines of the leading rank. A pure function of the files; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::watch {

struct AttemptTimes {
  double started = 0, ended = 0;  // seconds since 1970; 0: unknown
  std::optional<uint64_t> first_step, last_step;
};

struct Goodput {
  double wall = 0;  // from the first start to the end, or to the last line of a run that goes on or was lost
  double training = 0, repeated = 0, startup = 0, checkpoints = 0, stalls = 0, restarts = 0, down = 0, other = 0;
  uint64_t steps = 0;           // that count
  uint64_t repeated_steps = 0;  // done again after a restart
  std::map<int, AttemptTimes> attempts;

  // Nothing without metric lines.
  std::optional<double> ratio() const;
  // (name, seconds, what it is), training first; they add up to wall.
  struct Part {
    const char* name;
    double seconds;
    const char* meaning;
  };
  std::vector<Part> Parts() const;
};

// `end`: when the run ended; 0 where it has not, or nobody knows.
Goodput MeasureGoodput(const std::string& metrics_path, const std::vector<nlohmann::json>& events, double end);

}  // namespace lockstep::watch
